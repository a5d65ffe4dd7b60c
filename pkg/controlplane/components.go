package controlplane

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	serviceRange         = "10.96.0.0/16"
	serviceIP            = "10.96.0.1" // the first of serviceRange, which kube-apiserver takes for itself
	serviceAccountIssuer = "https://kubernetes.default.svc.cluster.local"
	// probeTimeout is that of one question to a health endpoint.
	probeTimeout = 5 * time.Second
)

// controllers that kube-controller-manager runs: those that act on what a cluster of
// Karpenter holds. Volumes, certificates, IP ranges and clouds are left out.
var controllers = []string{
	"clusterrole-aggregation-controller",
	"cronjob-controller",
	"daemonset-controller",
	"deployment-controller",
	"disruption-controller",
	"endpointslice-controller",
	"garbage-collector-controller",
	"horizontal-pod-autoscaler-controller",
	"job-controller",
	"namespace-controller",
	"node-lifecycle-controller",
	"pod-garbage-collector-controller",
	"replicaset-controller",
	"resourceclaim-controller",
	"resourcequota-controller",
	"root-ca-certificate-publisher-controller",
	"serviceaccount-controller",
	"serviceaccount-token-controller",
	"statefulset-controller",
	"taint-eviction-controller",
	"ttl-after-finished-controller",
}

// complete fills in what depends on directories and ports.
func (cp *ControlPlane) complete(c Component, spec *ProcessSpec) {
	spec.Args = append(cp.arguments(c), cp.opts.ExtraArgs[c]...)
	// etcd and KWOK also take settings from the environment and from the home directory;
	// those of the user are for other clusters.
	spec.Env = []string{"HOME=" + cp.dir, "PATH=/usr/bin:/bin"}
	spec.Dir = cp.dir
	spec.LogFile = filepath.Join(cp.dir, "logs", string(c)+".log")
	spec.Ready = cp.probe(c)
	spec.StartTimeout = cp.opts.StartTimeout
	spec.StopTimeout = cp.opts.StopTimeout
}

func (cp *ControlPlane) arguments(c Component) []string {
	switch c {
	case Etcd:
		return cp.etcdArguments()
	case APIServer:
		return cp.apiServerArguments()
	case ControllerManager:
		return cp.controllerManagerArguments()
	case Scheduler:
		return append(cp.delegating(Scheduler, cp.ports.scheduler), "--kube-api-qps=500", "--kube-api-burst=1000")
	default:
		return cp.kwokArguments()
	}
}

func (cp *ControlPlane) etcdArguments() []string {
	clients, peers := "https://"+hostPort(cp.ports.etcd), "http://"+hostPort(cp.ports.peer)
	return []string{
		"--name=default",
		"--data-dir=" + filepath.Join(cp.dir, "etcd"),
		"--listen-client-urls=" + clients,
		"--advertise-client-urls=" + clients,
		"--listen-peer-urls=" + peers,
		"--initial-advertise-peer-urls=" + peers,
		"--initial-cluster=default=" + peers,
		"--client-cert-auth",
		"--trusted-ca-file=" + cp.pki.path("ca.crt"),
		"--cert-file=" + cp.pki.path("server.crt"),
		"--key-file=" + cp.pki.path("server.key"),
		// What is written survives the death of etcd, if not that of the machine.
		"--unsafe-no-fsync",
		"--log-level=warn",
	}
}

func (cp *ControlPlane) apiServerArguments() []string {
	args := []string{
		"--etcd-servers=https://" + hostPort(cp.ports.etcd),
		"--etcd-cafile=" + cp.pki.path("ca.crt"),
		"--etcd-certfile=" + cp.pki.path("admin.crt"),
		"--etcd-keyfile=" + cp.pki.path("admin.key"),
		"--bind-address=" + loopback,
		"--advertise-address=" + loopback,
		"--secure-port=" + strconv.Itoa(cp.ports.apiServer),
		"--tls-cert-file=" + cp.pki.path("server.crt"),
		"--tls-private-key-file=" + cp.pki.path("server.key"),
		"--client-ca-file=" + cp.pki.path("ca.crt"),
		"--service-account-issuer=" + serviceAccountIssuer,
		"--service-account-key-file=" + cp.pki.path("sa.pub"),
		"--service-account-signing-key-file=" + cp.pki.path("sa.key"),
		"--authorization-mode=Node,RBAC",
		"--service-cluster-ip-range=" + serviceRange,
		"--allow-privileged=true",
		// No endpoint of the kubernetes Service would be reachable from a KWOK pod.
		"--endpoint-reconciler-type=none",
		// Without it a single open watch holds up the end for a minute.
		"--shutdown-watch-termination-grace-period=1s",
	}
	if !cp.opts.has(ControllerManager) {
		// Nobody makes the default service accounts, without which it refuses every pod.
		args = append(args, "--disable-admission-plugins=ServiceAccount")
	}
	return args
}

func (cp *ControlPlane) controllerManagerArguments() []string {
	grace := cp.opts.NodeMonitorGracePeriod
	return append(cp.delegating(ControllerManager, cp.ports.controllerManager),
		"--use-service-account-credentials",
		"--service-account-private-key-file="+cp.pki.path("sa.key"),
		"--root-ca-file="+cp.pki.path("ca.crt"),
		"--kube-api-qps=500",
		"--kube-api-burst=1000",
		"--node-monitor-grace-period="+grace.String(),
		// Its default for the default grace; ten looks within any shorter one.
		"--node-monitor-period="+min(5*time.Second, grace/10).String(),
		"--controllers="+strings.Join(controllers, ","),
	)
}

// delegating holds the arguments of components that ask the API server who their own callers are.
func (cp *ControlPlane) delegating(c Component, port int) []string {
	kubeconfig := cp.kubeconfigPath(string(c))
	return []string{
		"--kubeconfig=" + kubeconfig,
		"--authentication-kubeconfig=" + kubeconfig,
		"--authorization-kubeconfig=" + kubeconfig,
		"--bind-address=" + loopback,
		"--secure-port=" + strconv.Itoa(port),
		"--tls-cert-file=" + cp.pki.path("server.crt"),
		"--tls-private-key-file=" + cp.pki.path("server.key"),
		"--leader-elect=false",
	}
}

func (cp *ControlPlane) kwokArguments() []string {
	return []string{
		"--kubeconfig=" + cp.kubeconfigPath(adminUser),
		"--config=" + cp.kwokConfigPath(),
		"--server-address=" + hostPort(cp.ports.kwok),
	}
}

// probe asks the endpoint by which the component itself says that it is ready.
func (cp *ControlPlane) probe(c Component) func(context.Context) error {
	switch c {
	case Etcd:
		return cp.get("https://" + hostPort(cp.ports.etcd) + "/health")
	case APIServer:
		return cp.get("https://" + hostPort(cp.ports.apiServer) + "/readyz")
	case ControllerManager:
		return cp.get("https://" + hostPort(cp.ports.controllerManager) + "/healthz")
	case Scheduler:
		return cp.get("https://" + hostPort(cp.ports.scheduler) + "/readyz")
	default:
		return cp.get("http://" + hostPort(cp.ports.kwok) + "/healthz")
	}
}

func (cp *ControlPlane) get(url string) func(context.Context) error {
	roots := x509.NewCertPool()
	roots.AddCert(cp.pki.cert)
	httpClient := &http.Client{
		Timeout: probeTimeout,
		Transport: &http.Transport{
			// A connection kept open would hold up the server's shutdown.
			DisableKeepAlives: true,
			TLSClientConfig: &tls.Config{
				RootCAs:    roots,
				MinVersion: tls.VersionTLS12,
				GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
					pair, err := tls.LoadX509KeyPair(cp.pki.path("admin.crt"), cp.pki.path("admin.key"))
					return &pair, err
				},
			},
		},
	}
	return func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		response, err := httpClient.Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			body, _ := io.ReadAll(io.LimitReader(response.Body, 1<<10)) // only for the message
			return fmt.Errorf("%s answered %s: %s", url, response.Status, strings.TrimSpace(string(body)))
		}
		return nil
	}
}

// awaitUsable waits for what a cluster's first pod and node need: the default service
// account and the namespace of the leases.
func (cp *ControlPlane) awaitUsable(ctx context.Context) error {
	api, err := client.New(cp.RESTConfig(), client.Options{})
	if err != nil {
		return fmt.Errorf("connecting to kube-apiserver, %w", err)
	}
	wanted := map[types.NamespacedName]client.Object{{Name: corev1.NamespaceNodeLease}: &corev1.Namespace{}}
	if cp.opts.has(ControllerManager) {
		wanted[types.NamespacedName{Namespace: corev1.NamespaceDefault, Name: "default"}] = &corev1.ServiceAccount{}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, cp.opts.StartTimeout, fmt.Errorf("not there after %s", cp.opts.StartTimeout))
	defer cancel()
	for key, object := range wanted {
		found := func(ctx context.Context) error { return api.Get(ctx, key, object) }
		if err := poll(ctx, found, nil, nil); err != nil {
			return fmt.Errorf("waiting for %T %s, %w", object, key, err)
		}
	}
	return nil
}
