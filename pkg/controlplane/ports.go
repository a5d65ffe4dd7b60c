package controlplane

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

const loopback = "127.0.0.1"

// Ports are drawn below the range from which Linux (32768) and macOS (49152) take the
// local ends of connections, so that none of those grabs a port between its choice here
// and its use, and at random, so that planes that start side by side rarely meet.
const (
	firstPort = 20000
	lastPort  = 29999
	portDraws = 1000
)

// FreePorts returns n different loopback ports that nothing listens on.
func FreePorts(n int) (ports []int, err error) {
	var held []net.Listener
	// Held until all are found, so that no port comes twice.
	defer func() {
		for _, l := range held {
			err = errors.Join(err, l.Close())
		}
	}()
	for range portDraws {
		if len(ports) == n {
			return ports, nil
		}
		port := firstPort + rand.IntN(lastPort-firstPort+1) //nolint:gosec // a port is no secret
		l, err := net.Listen("tcp", hostPort(port))
		if err != nil {
			continue
		}
		held, ports = append(held, l), append(ports, port)
	}
	if len(ports) == n {
		return ports, nil
	}
	return nil, fmt.Errorf("finding %d free ports on %s between %d and %d, found %d in %d draws", n, loopback, firstPort, lastPort, len(ports), portDraws)
}

// checkPort tells whether a port that the user fixed is free.
func checkPort(port int) error {
	l, err := net.Listen("tcp", hostPort(port))
	if err != nil {
		return fmt.Errorf("APIServerPort: port %d on %s is not free (%w): end what listens there (`lsof -i :%d` names it), choose another port, or use 0 for a free one", port, loopback, err, port)
	}
	return l.Close()
}

func hostPort(port int) string {
	return net.JoinHostPort(loopback, strconv.Itoa(port))
}
