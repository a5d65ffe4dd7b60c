package deviceplugin_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	"k8s.io/utils/clock"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/sim/realnode/deviceplugin"
)

const gpu = "nvidia.com/gpu"

// kubelet is the other end of the protocol: it takes registrations and watches devices.
type kubelet struct {
	api.UnimplementedRegistrationServer
	dir    string
	server *grpc.Server

	mu            sync.Mutex
	registrations []string
	devices       map[string][]string // by resource, as ID=health
	plugins       map[string]api.DevicePluginClient
}

func startKubelet(t *testing.T, dir string) *kubelet {
	t.Helper()
	k := &kubelet{dir: dir, server: grpc.NewServer(), devices: map[string][]string{}, plugins: map[string]api.DevicePluginClient{}}
	path := filepath.Join(dir, "kubelet.sock")
	if err := os.RemoveAll(path); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	api.RegisterRegistrationServer(k.server, k)
	go func() { _ = k.server.Serve(listener) }() // ends with Stop
	t.Cleanup(k.server.Stop)
	return k
}

func (k *kubelet) Register(_ context.Context, r *api.RegisterRequest) (*api.Empty, error) {
	if r.Version != api.Version {
		return nil, fmt.Errorf("version %s", r.Version)
	}
	connection, err := grpc.NewClient("unix://"+filepath.Join(k.dir, r.Endpoint), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	client := api.NewDevicePluginClient(connection)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.registrations = append(k.registrations, r.ResourceName)
	k.plugins[r.ResourceName] = client
	go k.watch(r.ResourceName, client)
	return &api.Empty{}, nil
}

func (k *kubelet) watch(resource string, client api.DevicePluginClient) {
	stream, err := client.ListAndWatch(context.Background(), &api.Empty{})
	for err == nil {
		var response *api.ListAndWatchResponse
		if response, err = stream.Recv(); err == nil {
			k.set(resource, response.Devices)
		}
	}
	k.set(resource, nil)
}

func (k *kubelet) set(resource string, devices []*api.Device) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.devices[resource] = nil
	for _, d := range devices {
		k.devices[resource] = append(k.devices[resource], d.ID+"="+d.Health)
	}
}

func (k *kubelet) expect(t *testing.T, what string, registrations []string, devices ...string) {
	t.Helper()
	var diff string
	for range 100 {
		k.mu.Lock()
		diff = cmp.Diff(registrations, k.registrations) + cmp.Diff(devices, k.devices[gpu])
		k.mu.Unlock()
		if diff == "" {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatalf("%s: %s", what, diff)
}

func script(t *testing.T, dir string, s deviceplugin.Script) {
	t.Helper()
	if err := s.Write(dir); err != nil {
		t.Fatal(err)
	}
}

func gpus(devices ...deviceplugin.Device) map[string][]deviceplugin.Device {
	return map[string][]deviceplugin.Device{gpu: devices}
}

func TestPluginFollowsItsScript(t *testing.T) {
	dir, sockets := t.TempDir(), t.TempDir()
	k := startKubelet(t, sockets)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	plugin := deviceplugin.New(deviceplugin.Options{Dir: dir, KubeletDir: sockets, Clock: clock.RealClock{}})
	go func() { done <- plugin.Run(ctx) }()

	script(t, dir, deviceplugin.Script{Delay: deviceplugin.Duration(time.Hour), Resources: gpus(deviceplugin.Device{ID: "a"})})
	time.Sleep(500 * time.Millisecond)
	k.expect(t, "before the delay is over", nil)
	script(t, dir, deviceplugin.Script{Resources: gpus(deviceplugin.Device{ID: "a"}, deviceplugin.Device{ID: "b"})})
	k.expect(t, "after it", []string{gpu}, "a=Healthy", "b=Healthy")
	script(t, dir, deviceplugin.Script{Resources: gpus(deviceplugin.Device{ID: "a"}, deviceplugin.Device{ID: "b", Unhealthy: true})})
	k.expect(t, "one turns unhealthy", []string{gpu}, "a=Healthy", "b=Unhealthy")
	script(t, dir, deviceplugin.Script{Resources: gpus(deviceplugin.Device{ID: "a"})})
	k.expect(t, "one is missing", []string{gpu}, "a=Healthy")

	k.mu.Lock()
	client := k.plugins[gpu]
	k.mu.Unlock()
	answer, err := client.Allocate(ctx, &api.AllocateRequest{ContainerRequests: []*api.ContainerAllocateRequest{{DevicesIds: []string{"b", "a"}}}})
	if err != nil || answer.ContainerResponses[0].Envs["NVIDIA_VISIBLE_DEVICES"] != "a,b" {
		t.Errorf("allocating: %v, %v", answer, err)
	}
	script(t, dir, deviceplugin.Script{})
	k.expect(t, "the plugin stops", []string{gpu})

	script(t, dir, deviceplugin.Script{Resources: gpus(deviceplugin.Device{ID: "a"})})
	k.expect(t, "and registers again", []string{gpu, gpu}, "a=Healthy")
	k.server.Stop()
	next := startKubelet(t, sockets)
	next.expect(t, "with the next kubelet too", []string{gpu}, "a=Healthy")

	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	record, err := deviceplugin.Record(dir)
	if err != nil {
		t.Fatal(err)
	}
	var events []string
	for _, e := range record {
		events = append(events, e.Event)
		if e.Time.IsZero() || e.Resource != gpu {
			t.Errorf("the record has %+v", e)
		}
	}
	if want := []string{"registered", "allocated", "registered", "registered"}; !slices.Equal(events, want) {
		t.Errorf("the record has %v, want %v", events, want)
	}
}

func TestScriptThatCannotBeRead(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "record.jsonl"), []byte("{\"event\":\"allocated\"}\nnonsense\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	entries, err := deviceplugin.Record(dir)
	if len(entries) != 1 || err == nil {
		t.Errorf("got %v, %v", entries, err)
	}
}
