package stack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"
	"k8s.io/utils/ptr"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/sim/scenario"
)

const fieldManager = "sandbox"

// applier writes and reads objects of any kind that the API server serves.
type applier struct {
	client dynamic.Interface
	mapper *restmapper.DeferredDiscoveryRESTMapper
}

func newApplier(d discovery.DiscoveryInterface, c dynamic.Interface) *applier {
	return &applier{client: c, mapper: restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(d))}
}

// forget drops what is known of kinds, after new ones were installed.
func (a *applier) forget() { a.mapper.Reset() }

// apply writes all documents of a text by server-side apply and returns them.
func (a *applier) apply(ctx context.Context, text string) ([]*unstructured.Unstructured, error) {
	decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096)
	var applied []*unstructured.Unstructured
	for n := 1; ; n++ {
		o := &unstructured.Unstructured{}
		err := decoder.Decode(&o.Object)
		if errors.Is(err, io.EOF) {
			return applied, nil
		}
		if err != nil {
			return applied, fmt.Errorf("reading document %d, %w", n, err)
		}
		if len(o.Object) == 0 {
			continue
		}
		if o.GetKind() == "" || o.GetName() == "" {
			return applied, fmt.Errorf("document %d has no kind or no metadata.name", n)
		}
		if err := a.applyOne(ctx, o); err != nil {
			return applied, fmt.Errorf("%s %s, %w", o.GetKind(), o.GetName(), err)
		}
		applied = append(applied, o)
	}
}

func (a *applier) applyOne(ctx context.Context, o *unstructured.Unstructured) error {
	resource, err := a.resource(o.GroupVersionKind(), o.GetNamespace())
	if err != nil {
		return err
	}
	_, err = resource.Apply(ctx, o.GetName(), o, metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
	return err
}

func (a *applier) get(ctx context.Context, ref scenario.Ref) (*unstructured.Unstructured, error) {
	resource, err := a.of(ref)
	if err != nil {
		return nil, err
	}
	return resource.Get(ctx, ref.Name, metav1.GetOptions{})
}

func (a *applier) delete(ctx context.Context, ref scenario.Ref) error {
	resource, err := a.of(ref)
	if err != nil {
		return err
	}
	return resource.Delete(ctx, ref.Name, metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)})
}

func (a *applier) of(ref scenario.Ref) (dynamic.ResourceInterface, error) {
	gvk := schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind)
	if ref.APIVersion == "" {
		var err error
		if gvk, err = a.kind(ref.Kind); err != nil {
			return nil, err
		}
	}
	return a.resource(gvk, ref.Namespace)
}

// kind finds the preferred version of a kind by its name alone.
func (a *applier) kind(kind string) (schema.GroupVersionKind, error) {
	plural, _ := meta.UnsafeGuessKindToResource(schema.GroupVersionKind{Kind: kind})
	gvk, err := a.mapper.KindFor(plural)
	if err != nil {
		return gvk, fmt.Errorf("finding kind %s, %w; give its apiVersion", kind, err)
	}
	return gvk, nil
}

func (a *applier) resource(gvk schema.GroupVersionKind, namespace string) (dynamic.ResourceInterface, error) {
	mapping, err := a.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		return nil, fmt.Errorf("finding the resource of %s, %w", gvk, err)
	}
	if mapping.Scope.Name() != meta.RESTScopeNameNamespace {
		return a.client.Resource(mapping.Resource), nil
	}
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	return a.client.Resource(mapping.Resource).Namespace(namespace), nil
}

func scenarioRef(apiVersion, kind, name string) scenario.Ref {
	return scenario.Ref{APIVersion: apiVersion, Kind: kind, Name: name}
}

func conditionsOf(o *unstructured.Unstructured) []scenario.Condition {
	list, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions") // none when there is no status
	var out []scenario.Condition
	for _, item := range list {
		m, ok := item.(map[string]any)
		if !ok {
			continue
		}
		text := func(key string) string { v, _, _ := unstructured.NestedString(m, key); return v }
		out = append(out, scenario.Condition{Type: text("type"), Status: text("status"), Reason: text("reason"), Message: text("message")})
	}
	return out
}
