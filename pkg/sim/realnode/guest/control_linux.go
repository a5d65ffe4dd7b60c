package guest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"syscall"
	"time"
)

// maxRequest bounds a request's body.
const maxRequest = 1 << 20

// control is what the host program asks init for.
type control struct {
	services *services
	reaper   *reaper
	server   *http.Server
}

func listenControl(path string, s *services, r *reaper) (*control, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("removing the last boot's socket, %w", err)
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("listening for the host, %w", err)
	}
	c := &control{services: s, reaper: r}
	routes := http.NewServeMux()
	routes.HandleFunc("GET /services", func(w http.ResponseWriter, _ *http.Request) { answer(w, s.list(), nil) })
	routes.HandleFunc("POST /services", func(w http.ResponseWriter, q *http.Request) {
		var def Service
		err := decode(q, &def)
		if err == nil {
			err = s.define(def)
		}
		answer(w, s.list(), err)
	})
	routes.HandleFunc("POST /services/{name}/stop", func(w http.ResponseWriter, q *http.Request) {
		answer(w, s.list(), s.stop(q.PathValue("name"), shutdownTime))
	})
	routes.HandleFunc("POST /services/{name}/kill", func(w http.ResponseWriter, q *http.Request) {
		answer(w, s.list(), s.kill(q.PathValue("name")))
	})
	routes.HandleFunc("POST /run", func(w http.ResponseWriter, q *http.Request) {
		var command Command
		err := decode(q, &command)
		var result Result
		if err == nil {
			result, err = c.run(q.Context(), command)
		}
		answer(w, result, err)
	})
	c.server = &http.Server{Handler: routes, ReadHeaderTimeout: 10 * time.Second}
	go func() {
		if err := c.server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			fmt.Fprintln(os.Stderr, "serving the host:", err)
		}
	}()
	return c, nil
}

func (c *control) close() error { return c.server.Close() }

func decode(q *http.Request, into any) error {
	return json.NewDecoder(io.LimitReader(q.Body, maxRequest)).Decode(into)
}

func answer(w http.ResponseWriter, value any, err error) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	_ = json.NewEncoder(w).Encode(value) // the host has gone
}

// run runs a command to its end, or kills it when the host no longer waits.
func (c *control) run(ctx context.Context, command Command) (Result, error) {
	if len(command.Args) == 0 {
		return Result{}, errors.New("running a command, args are empty")
	}
	output, err := os.CreateTemp("/tmp", "run-")
	if err != nil {
		return Result{}, fmt.Errorf("keeping a command's output, %w", err)
	}
	defer func() { _ = errors.Join(output.Close(), os.Remove(output.Name())) }() // in memory, and gone with it
	pid, ended, err := c.reaper.start(command.Args, nil, output)
	if err != nil {
		return Result{}, err
	}
	var status syscall.WaitStatus
	select {
	case status = <-ended:
	case <-ctx.Done():
		_ = syscall.Kill(pid, syscall.SIGKILL) // ended meanwhile
		return Result{}, fmt.Errorf("running %s, %w", command.Args[0], ctx.Err())
	}
	data, err := os.ReadFile(output.Name())
	if err != nil {
		return Result{}, fmt.Errorf("reading a command's output, %w", err)
	}
	result := Result{Code: status.ExitStatus(), Output: string(data)}
	if status.Signaled() {
		result.Code = 128 + int(status.Signal())
	}
	return result, nil
}
