"""The floor of the webhook's bench: an aiohttp server over TLS that reads the body and answers a constant.

python -m bench.webhook_bare CERTIFICATE KEY BYTES    (prints its port)
"""

import asyncio
import ssl
import sys

from aiohttp import web


async def serve(certificate: str, key: str, size: int) -> None:
    """Serves until it is killed."""
    constant = b"{" + b" " * (size - 2) + b"}"

    async def answer(request: web.Request) -> web.Response:
        await request.read()
        return web.Response(body=constant, content_type="application/json")

    application = web.Application(client_max_size=8 * 1024 * 1024)
    application.router.add_post("/mutate--v1-pod", answer)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], sys.argv[2], int(sys.argv[3])))
