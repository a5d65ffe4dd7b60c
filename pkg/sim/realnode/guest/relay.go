package guest

import (
	"io"
	"net"
	"sync"
)

// Relay accepts connections until the listener is closed and joins each with one that dial
// opens. A connection that cannot be joined is closed, as by a server that is down.
func Relay(listener net.Listener, dial func() (net.Conn, error)) {
	for {
		near, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer near.Close()
			far, err := dial()
			if err != nil {
				return
			}
			defer far.Close()
			join(near, far)
		}()
	}
}

// join copies both ways, and passes on the end of each.
func join(a, b net.Conn) {
	var both sync.WaitGroup
	for _, pair := range [][2]net.Conn{{a, b}, {b, a}} {
		both.Go(func() {
			_, _ = io.Copy(pair[0], pair[1]) // either end may break off
			if half, ok := pair[0].(interface{ CloseWrite() error }); ok {
				_ = half.CloseWrite() // gone already
			}
		})
	}
	both.Wait()
}
