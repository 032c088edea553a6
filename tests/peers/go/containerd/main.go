// pause is the only program in the images of the containerd tests: it waits for the signal to end. It is built here so
// that tests need no compiler and no image of anybody else's.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGTERM, syscall.SIGINT) // the first process of a container dies of no signal it does not handle
	<-end
}
