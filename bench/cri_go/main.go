// cribench is what the relay is compared with and measured by, and what asks for keys as kubelet does:
//
//	cribench server SOCKET CONTAINERS
//	cribench proxy LISTEN UPSTREAM
//	cribench client SOCKET METHOD CALLS CONNECTIONS WORKERS REQUEST_BYTES|REQUEST_FILE
//	cribench each SOCKET PATH
//
// The server answers like a CRI runtime with so many containers, from memory. The proxy is the barest that gRPC's Go
// library allows: any method, bytes in and bytes out. The client prints the time of each call in nanoseconds, and how
// long all of them took. Each calls one method, by its whole path, with one request after the other, and prints their
// times and what was refused. It must not be used for anything else.
package main

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

const largest = 64 << 20

// raw passes messages as the bytes that they are.
type raw struct{}

func (raw) Name() string { return "proto" }

func (raw) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(*v.(*[]byte))}, nil
}

func (raw) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}

var _ encoding.CodecV2 = raw{}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "cribench:", err)
		os.Exit(1)
	}
}

func number(text string) int {
	n, err := strconv.Atoi(text)
	check(err)
	return n
}

func serve(path string, handler grpc.StreamHandler) {
	listener, err := net.Listen("unix", path)
	check(err)
	server := grpc.NewServer(grpc.ForceServerCodecV2(raw{}), grpc.UnknownServiceHandler(handler),
		grpc.MaxRecvMsgSize(largest), grpc.MaxSendMsgSize(largest))
	check(server.Serve(listener))
}

// field is a length-delimited protobuf field.
func field(tag byte, value string) string {
	head := []byte{tag<<3 | 2}
	for n := len(value); ; n >>= 7 {
		if n < 128 {
			head = append(head, byte(n))
			break
		}
		head = append(head, byte(n)|128)
	}
	return string(head) + value
}

// container is one row of ListContainers, as large as kubelet's containers are.
func container(n int) string {
	id := strings.Repeat(fmt.Sprintf("%08x", n), 8)
	row := field(1, id) + field(2, id) + field(3, field(1, fmt.Sprintf("c-%d", n))) + field(4, field(1, id)) + field(5, id)
	for _, label := range []string{"container.name", "pod.name", "pod.namespace", "pod.uid"} {
		row += field(8, field(1, "io.kubernetes."+label)+field(2, fmt.Sprintf("value-of-%d", n)))
	}
	for _, note := range []string{"hash", "restartCount", "terminationMessagePath", "terminationMessagePolicy"} {
		row += field(9, field(1, "io.kubernetes.container."+note)+field(2, fmt.Sprintf("value-of-%d", n)))
	}
	return field(1, row)
}

// sandbox is the row of ListPodSandbox of that container's pod.
func sandbox(n int) string {
	id := strings.Repeat(fmt.Sprintf("%08x", n), 8)
	named := field(1, fmt.Sprintf("pod-%d", n)) + field(2, fmt.Sprintf("uid-%d", n)) + field(3, "default")
	return field(1, field(1, id)+field(2, named)+field(6, field(1, "epc-limit.nri.io/pod")+field(2, "4096")))
}

func server(path string, containers int) {
	var list, pods strings.Builder
	for n := range containers {
		list.WriteString(container(n))
		pods.WriteString(sandbox(n))
	}
	answers := map[string][]byte{
		"ListPodSandbox":  []byte(pods.String()),
		"ListContainers":  []byte(list.String()),
		"Version":         []byte(field(1, "0.1.0") + field(2, "containerd") + field(3, "2.4.2") + field(4, "v1")),
		"CreateContainer": []byte(field(1, strings.Repeat("f", 64))),
	}
	serve(path, func(_ any, stream grpc.ServerStream) error {
		full, _ := grpc.MethodFromServerStream(stream)
		var request []byte
		if err := stream.RecvMsg(&request); err != nil {
			return err
		}
		answer := answers[full[strings.LastIndexByte(full, '/')+1:]]
		return stream.SendMsg(&answer)
	})
}

func dial(path string) *grpc.ClientConn {
	connection, err := grpc.NewClient("unix:"+path, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(raw{}), grpc.MaxCallRecvMsgSize(largest), grpc.MaxCallSendMsgSize(largest)))
	check(err)
	return connection
}

func proxy(listen, upstream string) {
	connection := dial(upstream)
	describe := &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}
	serve(listen, func(_ any, near grpc.ServerStream) error {
		full, _ := grpc.MethodFromServerStream(near)
		ctx, cancel := context.WithCancel(near.Context())
		defer cancel()
		if given, ok := metadata.FromIncomingContext(ctx); ok {
			ctx = metadata.NewOutgoingContext(ctx, given)
		}
		far, err := connection.NewStream(ctx, describe, full)
		if err != nil {
			return err
		}
		go func() {
			for {
				var request []byte
				if err := near.RecvMsg(&request); err != nil {
					if err == io.EOF {
						far.CloseSend()
					} else {
						cancel()
					}
					return
				}
				if far.SendMsg(&request) != nil {
					return
				}
			}
		}()
		for {
			var answer []byte
			if err := far.RecvMsg(&answer); err == io.EOF {
				near.SetTrailer(far.Trailer())
				return nil
			} else if err != nil {
				return status.Convert(err).Err()
			}
			if err := near.SendMsg(&answer); err != nil {
				return err
			}
		}
	})
}

// client makes the calls once for each line of its standard input, so that it is warm for all but the first.
func client(path, method string, calls, connections, workers int, what string) {
	links := make([]*grpc.ClientConn, connections)
	for n := range links {
		links[n] = dial(path)
	}
	var request []byte
	if size, err := strconv.Atoi(what); err == nil {
		request = []byte(strings.Repeat("r", size))
	} else {
		request, err = os.ReadFile(what)
		check(err)
	}
	full := "/runtime.v1.RuntimeService/" + method
	turns := bufio.NewScanner(os.Stdin)
	for turns.Scan() {
		times := make([]int64, calls)
		var next atomic.Int64
		var group sync.WaitGroup
		began := time.Now()
		for worker := range workers {
			group.Add(1)
			go func() {
				defer group.Done()
				link := links[worker%connections]
				for {
					n := next.Add(1) - 1
					if n >= int64(calls) {
						return
					}
					ctx, cancel := context.WithTimeout(context.Background(), 120*time.Second)
					at := time.Now()
					var answer []byte
					err := link.Invoke(ctx, full, &request, &answer)
					times[n] = time.Since(at).Nanoseconds()
					cancel()
					check(err)
				}
			}()
		}
		group.Wait()
		took := time.Since(began)
		check(json.NewEncoder(os.Stdout).Encode(map[string]any{"times_ns": times, "took_ns": took.Nanoseconds()}))
	}
}

// each takes its requests from its standard input, a line of base64 each.
func each(path, full string) {
	link := dial(path)
	times, refusals := []int64{}, []string{}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		request, err := base64.StdEncoding.DecodeString(lines.Text())
		check(err)
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		at := time.Now()
		var answer []byte
		err = link.Invoke(ctx, full, &request, &answer)
		times = append(times, time.Since(at).Nanoseconds())
		cancel()
		if err != nil {
			refusals = append(refusals, err.Error())
		}
	}
	check(lines.Err())
	check(json.NewEncoder(os.Stdout).Encode(map[string]any{"times_ns": times, "refusals": refusals}))
}

func main() {
	arguments := os.Args[1:]
	switch {
	case len(arguments) == 3 && arguments[0] == "server":
		server(arguments[1], number(arguments[2]))
	case len(arguments) == 3 && arguments[0] == "proxy":
		proxy(arguments[1], arguments[2])
	case len(arguments) == 7 && arguments[0] == "client":
		client(arguments[1], arguments[2], number(arguments[3]), number(arguments[4]), number(arguments[5]), arguments[6])
	case len(arguments) == 3 && arguments[0] == "each":
		each(arguments[1], arguments[2])
	default:
		fmt.Fprintln(os.Stderr, "usage: cribench server|proxy|client|each ...")
		os.Exit(2)
	}
}
