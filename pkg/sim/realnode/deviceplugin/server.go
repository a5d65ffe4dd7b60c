package deviceplugin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// registerTimeout bounds a registration.
const registerTimeout = 10 * time.Second

// server serves one resource.
type server struct {
	api.UnimplementedDevicePluginServer
	resource string
	record   func(event, resource string, devices []string)
	grpc     *grpc.Server

	mu      sync.Mutex
	devices []Device
	changed chan struct{} // closed and replaced with each change
}

func newServer(resource string, record func(event, resource string, devices []string)) *server {
	return &server{resource: resource, record: record, grpc: grpc.NewServer(), changed: make(chan struct{})}
}

// set changes the devices; the kubelet hears of it at once.
func (s *server) set(devices []Device) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if sameDevices(s.devices, devices) {
		return
	}
	s.devices = slices.Clone(devices)
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *server) get() ([]Device, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.devices, s.changed
}

// start serves on a socket beside the kubelet's and registers there.
func (s *server) start(ctx context.Context, dir string) error {
	name := strings.NewReplacer("/", "-", ".", "-").Replace(s.resource) + ".sock"
	path := filepath.Join(dir, name)
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing an old socket, %w", err)
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		return fmt.Errorf("listening, %w", err)
	}
	api.RegisterDevicePluginServer(s.grpc, s)
	go func() { _ = s.grpc.Serve(listener) }() // ends with stop
	return register(ctx, filepath.Join(dir, filepath.Base(api.KubeletSocket)), &api.RegisterRequest{
		Version: api.Version, Endpoint: name, ResourceName: s.resource, Options: &api.DevicePluginOptions{},
	})
}

func register(ctx context.Context, socket string, request *api.RegisterRequest) error {
	connection, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return fmt.Errorf("connecting to the kubelet, %w", err)
	}
	defer connection.Close()
	ctx, cancel := context.WithTimeout(ctx, registerTimeout)
	defer cancel()
	if _, err := api.NewRegistrationClient(connection).Register(ctx, request); err != nil {
		return fmt.Errorf("registering, %w", err)
	}
	return nil
}

func (s *server) stop() { s.grpc.Stop() }

// GetDevicePluginOptions implements api.DevicePluginServer.
func (s *server) GetDevicePluginOptions(context.Context, *api.Empty) (*api.DevicePluginOptions, error) {
	return &api.DevicePluginOptions{}, nil
}

// ListAndWatch implements api.DevicePluginServer.
func (s *server) ListAndWatch(_ *api.Empty, stream api.DevicePlugin_ListAndWatchServer) error {
	for {
		devices, changed := s.get()
		response := &api.ListAndWatchResponse{}
		for _, d := range devices {
			health := api.Healthy
			if d.Unhealthy {
				health = api.Unhealthy
			}
			response.Devices = append(response.Devices, &api.Device{ID: d.ID, Health: health})
		}
		if err := stream.Send(response); err != nil {
			return err
		}
		select {
		case <-stream.Context().Done():
			return nil
		case <-changed:
		}
	}
}

// Allocate implements api.DevicePluginServer: it names the devices to NVIDIA's container runtime.
func (s *server) Allocate(_ context.Context, request *api.AllocateRequest) (*api.AllocateResponse, error) {
	response := &api.AllocateResponse{}
	for _, container := range request.ContainerRequests {
		devices := slices.Sorted(slices.Values(container.DevicesIds))
		s.record(Allocated, s.resource, devices)
		response.ContainerResponses = append(response.ContainerResponses, &api.ContainerAllocateResponse{
			Envs: map[string]string{"NVIDIA_VISIBLE_DEVICES": strings.Join(devices, ",")},
		})
	}
	return response, nil
}
