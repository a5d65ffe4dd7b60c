package deviceplugin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"time"

	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	"k8s.io/utils/clock"
)

// look is how often the script and the kubelet's socket are looked at.
const look = 200 * time.Millisecond

// Options of a Plugin. Dir and Clock are needed.
type Options struct {
	// Dir holds the script and the record.
	Dir string
	// KubeletDir holds kubelet.sock; empty is the kubelet's own.
	KubeletDir string
	Clock      clock.Clock
}

// Plugin serves what the script says.
type Plugin struct {
	opts    Options
	kubelet os.FileInfo // of the socket with which it is registered; nil before
	servers map[string]*server

	mu sync.Mutex // guards the record
}

// New returns a Plugin that Run starts.
func New(opts Options) *Plugin {
	if opts.KubeletDir == "" {
		opts.KubeletDir = api.DevicePluginPath
	}
	return &Plugin{opts: opts, servers: map[string]*server{}}
}

// Run serves until the context ends. What goes wrong is told and tried again.
func (p *Plugin) Run(ctx context.Context) error {
	defer p.stop()
	started, told := p.opts.Clock.Now(), ""
	for {
		err := p.step(ctx, started)
		if err != nil && err.Error() != told {
			fmt.Fprintln(os.Stderr, "serving devices:", err)
		}
		told = ""
		if err != nil {
			told = err.Error()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-p.opts.Clock.After(look):
		}
	}
}

// step brings the servers in line with the script and the kubelet.
func (p *Plugin) step(ctx context.Context, started time.Time) error {
	script, err := read(p.opts.Dir)
	if err != nil {
		return err
	}
	if p.opts.Clock.Since(started) < time.Duration(script.Delay) {
		return nil
	}
	socket, err := os.Stat(filepath.Join(p.opts.KubeletDir, filepath.Base(api.KubeletSocket)))
	if err != nil {
		return fmt.Errorf("looking for the kubelet, %w", err)
	}
	if p.kubelet != nil && !sameSocket(p.kubelet, socket) {
		p.stop() // the kubelet has removed our sockets too
	}
	p.kubelet = socket
	for name, s := range p.servers {
		if _, wanted := script.Resources[name]; !wanted {
			s.stop()
			delete(p.servers, name)
		}
	}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(script.Resources)) {
		errs = append(errs, p.serve(ctx, name, script.Resources[name]))
	}
	return errors.Join(errs...)
}

// sameSocket compares times too: an inode's number is soon used again.
func sameSocket(a, b os.FileInfo) bool {
	return os.SameFile(a, b) && a.ModTime().Equal(b.ModTime())
}

func (p *Plugin) serve(ctx context.Context, resource string, devices []Device) error {
	if s, running := p.servers[resource]; running {
		s.set(devices)
		return nil
	}
	s := newServer(resource, p.record)
	s.set(devices)
	if err := s.start(ctx, p.opts.KubeletDir); err != nil {
		s.stop()
		return fmt.Errorf("serving %s, %w", resource, err)
	}
	p.servers[resource] = s
	p.record(Registered, resource, nil)
	return nil
}

func (p *Plugin) stop() {
	for name, s := range p.servers {
		s.stop()
		delete(p.servers, name)
	}
}

// record appends one line, in one write. A record that cannot be kept is told of, and misses
// in what reads it.
func (p *Plugin) record(event, resource string, devices []string) {
	line, err := json.Marshal(Entry{Time: p.opts.Clock.Now().UTC(), Event: event, Resource: resource, Devices: devices})
	if err == nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		err = appendTo(filepath.Join(p.opts.Dir, recordFile), append(line, '\n'))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "recording:", err)
	}
}

func appendTo(path string, data []byte) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	return errors.Join(err, file.Close())
}

func sameDevices(a, b []Device) bool { return reflect.DeepEqual(a, b) }
