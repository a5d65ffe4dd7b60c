package controlplane

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"text/template"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// kubelets renew a lease of 40 s four times within it.
const kubeletLease = 40 * time.Second

//go:embed kwok.yaml.tmpl
var kwokTemplate string

// kwokValues fill kwok.yaml.tmpl, whose delimiters are << >>: the stages have templates of their own.
type kwokValues struct {
	NodeAnnotation      string
	DownAnnotation      string
	RunForAnnotation    string
	StrandedAnnotation  string
	LeaseSeconds        int
	HeartbeatMillis     int64
	PodCIDR, NodeIPAddr string
}

func (cp *ControlPlane) kwokConfigPath() string { return filepath.Join(cp.dir, "kwok.yaml") }

func (cp *ControlPlane) writeKWOKConfig() error {
	parsed, err := template.New("kwok").Delims("<<", ">>").Option("missingkey=error").Parse(kwokTemplate)
	if err != nil {
		return fmt.Errorf("parsing kwok's configuration, %w", err)
	}
	var out bytes.Buffer
	err = parsed.Execute(&out, kwokValues{
		NodeAnnotation:     NodeAnnotation,
		DownAnnotation:     DownAnnotation,
		RunForAnnotation:   RunForAnnotation,
		StrandedAnnotation: StrandedAnnotation,
		LeaseSeconds:       leaseSeconds(cp.opts.NodeMonitorGracePeriod),
		HeartbeatMillis:    (5 * time.Minute).Milliseconds(), // a kubelet's interval for a status without change
		PodCIDR:            "10.244.0.1/16",
		NodeIPAddr:         loopback,
	})
	if err != nil {
		return fmt.Errorf("rendering kwok's configuration, %w", err)
	}
	if err := os.WriteFile(cp.kwokConfigPath(), out.Bytes(), 0o600); err != nil {
		return fmt.Errorf("writing kwok's configuration, %w", err)
	}
	return nil
}

// leaseSeconds is a kubelet's lease, or four fifths of a shorter grace, as 40 s are of 50 s.
func leaseSeconds(grace time.Duration) int {
	return int(min(kubeletLease, grace*4/5) / time.Second)
}

// releaseLeases lets the next KWOK take the nodes at once: it has a new identity at every
// start and would otherwise wait for the leases of the last one to run out. Those of
// nodes that are down stay.
func (cp *ControlPlane) releaseLeases(ctx context.Context) error {
	api, err := client.New(cp.RESTConfig(), client.Options{})
	if err != nil {
		return fmt.Errorf("connecting to kube-apiserver, %w", err)
	}
	leases := &coordinationv1.LeaseList{}
	if err := api.List(ctx, leases, client.InNamespace(corev1.NamespaceNodeLease)); err != nil {
		return fmt.Errorf("listing node leases, %w", err)
	}
	for i := range leases.Items {
		lease := &leases.Items[i]
		if holder := lease.Spec.HolderIdentity; holder != nil && *holder == downHolder {
			continue
		}
		if err := client.IgnoreNotFound(api.Delete(ctx, lease)); err != nil {
			return fmt.Errorf("deleting the lease of node %s, %w", lease.Name, err)
		}
	}
	return nil
}
