// Package testenv gives test suites a real API server: etcd and kube-apiserver with CRDs
// installed, a client, and a way to stop.
//
// It does what controller-runtime's envtest does, on package controlplane: binaries are
// found in the same places as the sandbox's, and the servers die with a test run that
// panics or times out, which on Linux no cleanup code could ensure otherwise. Controllers
// do not run here: nothing schedules pods, collects garbage or finishes namespaces.
//
// It knows none of the product's types. A suite passes the CRDs and the scheme it needs.
package testenv

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/controlplane"
)

// Options says what a suite needs beyond an API server. The zero value is a bare one.
type Options struct {
	// CRDs to install, as objects such as Karpenter's apis.CRDs.
	CRDs []*apiextensionsv1.CustomResourceDefinition
	// Manifests to install, each YAML with one CRD or several.
	Manifests [][]byte
	// Scheme of the client; nil means client-go's, which knows Kubernetes' own types.
	Scheme *runtime.Scheme
	// ControlPlane is passed on; its Components default to controlplane.APIOnly.
	ControlPlane controlplane.Options
}

// Environment is an API server that runs.
type Environment struct {
	// Config is an administrator's, without a limit on requests.
	Config *rest.Config
	// Client reads from the server, not from a cache.
	Client client.Client
	// ControlPlane is what runs: for further users, kubeconfigs and restarts.
	ControlPlane *controlplane.ControlPlane
}

// Start returns when the server is up and serves the CRDs. On an error nothing runs.
func Start(ctx context.Context, opts Options) (*Environment, error) {
	crds := opts.CRDs
	for i, manifest := range opts.Manifests {
		parsed, err := parse(manifest)
		if err != nil {
			return nil, fmt.Errorf("Manifests[%d]: %w", i, err) //nolint:staticcheck // starts with the name of the field
		}
		crds = append(crds[:len(crds):len(crds)], parsed...)
	}
	if opts.ControlPlane.Components == nil {
		opts.ControlPlane.Components = controlplane.APIOnly()
	}
	if opts.Scheme == nil {
		opts.Scheme = scheme.Scheme
	}
	cp, err := controlplane.Start(ctx, opts.ControlPlane)
	if err != nil {
		return nil, err
	}
	env := &Environment{Config: cp.RESTConfig(), ControlPlane: cp}
	if err := env.connect(opts.Scheme, crds); err != nil {
		return nil, errors.Join(err, cp.Stop(context.WithoutCancel(ctx)))
	}
	return env, nil
}

func (e *Environment) connect(scheme *runtime.Scheme, crds []*apiextensionsv1.CustomResourceDefinition) (err error) {
	if len(crds) > 0 {
		if _, err := envtest.InstallCRDs(e.Config, envtest.CRDInstallOptions{CRDs: crds, Scheme: scheme}); err != nil {
			return fmt.Errorf("installing the CRDs, %w", err)
		}
	}
	if e.Client, err = client.New(e.Config, client.Options{Scheme: scheme}); err != nil {
		return fmt.Errorf("connecting to kube-apiserver, %w", err)
	}
	return nil
}

// Stop ends the servers and removes what they wrote. Stopping twice, or an Environment
// that is nil because its start failed, is harmless.
func (e *Environment) Stop(ctx context.Context) error {
	if e == nil {
		return nil
	}
	return e.ControlPlane.Stop(ctx)
}

// parse reads the CRDs of a manifest; anything else in it is an error.
func parse(manifest []byte) (crds []*apiextensionsv1.CustomResourceDefinition, err error) {
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(manifest), 4<<10)
	for {
		crd := &apiextensionsv1.CustomResourceDefinition{}
		err := decoder.Decode(crd)
		if errors.Is(err, io.EOF) {
			return crds, nil
		}
		if err != nil {
			return nil, fmt.Errorf("parsing a CRD, %w", err)
		}
		switch {
		case crd.Kind == "" && crd.Name == "":
			continue // an empty document
		case crd.Kind != "CustomResourceDefinition":
			return nil, fmt.Errorf("kind %q of %q is no CustomResourceDefinition: pass CRDs only", crd.Kind, crd.Name)
		}
		crds = append(crds, crd)
	}
}
