package guest

import (
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// startNetwork brings loopback up with the machine's addresses and lets it route for pods.
func startNetwork(spec Spec) error {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("opening a socket, %w", err)
	}
	defer unix.Close(socket)
	request, err := unix.NewIfreq("lo")
	if err != nil {
		return fmt.Errorf("naming loopback, %w", err)
	}
	request.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(socket, unix.SIOCSIFFLAGS, request); err != nil {
		return fmt.Errorf("bringing loopback up, %w", err)
	}
	for i, address := range spec.Addresses {
		if err := addAddress(socket, fmt.Sprintf("lo:%d", i+1), address); err != nil {
			return fmt.Errorf("giving the machine the address %s, %w", address, err)
		}
	}
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o600); err != nil {
		return fmt.Errorf("letting the machine route, %w", err)
	}
	return nil
}

// addAddress puts one address on an alias of loopback: whoever is in the machine's network
// reaches it, pods through their gateway.
func addAddress(socket int, alias, address string) error {
	ip := net.ParseIP(address).To4()
	if ip == nil {
		return errors.New("it is no IPv4 address")
	}
	for _, set := range []struct {
		request uint
		value   []byte
	}{{unix.SIOCSIFADDR, ip}, {unix.SIOCSIFNETMASK, []byte{255, 255, 255, 255}}} {
		request, err := unix.NewIfreq(alias)
		if err != nil {
			return err
		}
		if err := request.SetInet4Addr(set.value); err != nil {
			return err
		}
		if err := unix.IoctlIfreq(socket, set.request, request); err != nil {
			return err
		}
	}
	return nil
}

// forwarder passes connections on from TCP addresses to Unix sockets.
type forwarder struct{ listeners []net.Listener }

func forward(routes map[string]string) (*forwarder, error) {
	f := &forwarder{}
	for address, socket := range routes {
		listener, err := net.Listen("tcp", address)
		if err != nil {
			f.close()
			return nil, fmt.Errorf("listening in the machine, %w", err)
		}
		f.listeners = append(f.listeners, listener)
		go Relay(listener, func() (net.Conn, error) { return net.Dial("unix", socket) })
	}
	return f, nil
}

func (f *forwarder) close() {
	for _, l := range f.listeners {
		_ = l.Close() // what it relays goes on until its ends close
	}
}
