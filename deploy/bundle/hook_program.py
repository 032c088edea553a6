"""The program `nodeward-oci-hook` of the bundle."""

from nodeward.shims.oci_hook import main

if __name__ == "__main__":
    main()
