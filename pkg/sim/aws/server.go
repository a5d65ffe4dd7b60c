package aws

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"
)

// Server is a simulated AWS account behind an HTTP endpoint. Its methods are safe
// for concurrent use.
type Server struct {
	opts  Options
	types map[string]InstanceType
	store store

	mu      sync.Mutex
	st      *state
	changes uint64
	calls   uint64

	wake    chan struct{} // something may be due earlier than the loop thinks
	arrived chan struct{} // closed and replaced when a queue message arrives

	listener net.Listener
	http     *http.Server
	cancel   context.CancelFunc
	done     sync.WaitGroup
	quiet    sync.WaitGroup // calls of NodeFailer
}

// New checks the options and loads or makes the account. It opens no port.
func New(opts Options) (*Server, error) {
	opts.defaults()
	if err := opts.validate(); err != nil {
		return nil, fmt.Errorf("configuring the simulated aws, %w", err)
	}
	s := &Server{
		opts:    opts,
		types:   map[string]InstanceType{},
		store:   store{path: opts.StatePath},
		wake:    make(chan struct{}, 1),
		arrived: make(chan struct{}),
	}
	for _, it := range opts.InstanceTypes {
		if price, ok := opts.Prices[it.Name]; ok {
			it.PricePerHour = price
		}
		s.types[it.Name] = it
	}
	st, err := s.store.load()
	if err != nil {
		return nil, err
	}
	if st != nil && st.Region != opts.Region {
		return nil, fmt.Errorf("configuring the simulated aws, state %s is of region %s and region is %s; use that region or remove the file",
			opts.StatePath, st.Region, opts.Region)
	}
	if st == nil {
		st = newState(&opts)
	}
	s.st = st
	s.seedAccount()
	return s, nil
}

// seedAccount puts into the account what the options say that it has. Reservations
// of the options replace those of a loaded state with the same ID.
func (s *Server) seedAccount() {
	for _, r := range s.opts.Reservations {
		r.complete(s)
		s.st.Reservations[r.ID] = &r
	}
	for _, image := range s.opts.Images {
		s.st.Images[image.ID] = &image
	}
}

// Start listens and begins to boot and end instances. Stop, or the end of ctx, ends both.
func (s *Server) Start(ctx context.Context) error {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", s.opts.Addr)
	if err != nil {
		return fmt.Errorf("listening on addr %q, %w; free the port or use 127.0.0.1:0", s.opts.Addr, err)
	}
	ctx, s.cancel = context.WithCancel(ctx)
	s.listener = listener
	s.http = &http.Server{
		Handler:           s.Handler(),
		ReadHeaderTimeout: 10 * time.Second,
		BaseContext:       func(net.Listener) context.Context { return ctx },
	}
	s.done.Go(func() { s.run(ctx) })
	s.done.Go(func() {
		if err := s.http.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			s.opts.Log.Error(err, "serving the simulated aws")
		}
	})
	context.AfterFunc(ctx, func() { _ = s.http.Close() })
	return nil
}

// URL is the address for AWS_ENDPOINT_URL, empty before Start.
func (s *Server) URL() string {
	if s.listener == nil {
		return ""
	}
	return "http://" + s.listener.Addr().String()
}

// Stop ends the server and saves the account. It may be called more than once.
func (s *Server) Stop() error {
	if s.cancel == nil {
		return nil
	}
	s.cancel()
	s.done.Wait()
	s.quiet.Wait()
	return s.update(func() error { return nil })
}

// Handler serves every simulated service and the admin interface under /_sim/.
// Start uses it; a test may mount it elsewhere.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	s.adminRoutes(mux)
	mux.HandleFunc("GET /clusters/{name}", s.describeCluster)
	mux.HandleFunc("/", s.dispatch)
	return mux
}

func (s *Server) kick() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}
