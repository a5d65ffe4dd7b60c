package manifest

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	serializer "k8s.io/apimachinery/pkg/runtime/serializer/json"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/yaml"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/catalogprovider"
)

var scheme = NewScheme()

// NewScheme returns a scheme of all kinds that are read, Nodes and NodeClaims too.
func NewScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	karpenter := schema.GroupVersion{Group: "karpenter.sh", Version: "v1"}
	s.AddKnownTypes(karpenter, &karpv1.NodePool{}, &karpv1.NodePoolList{}, &karpv1.NodeClaim{}, &karpv1.NodeClaimList{})
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, appsv1.AddToScheme, batchv1.AddToScheme, storagev1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(s); err != nil {
			panic(err) // two types of one kind: a fault of this program
		}
	}
	return s
}

// read are the kinds that have a part in a plan.
var read = map[schema.GroupKind]func() client.Object{
	{Group: "karpenter.sh", Kind: "NodePool"}:       func() client.Object { return &karpv1.NodePool{} },
	{Group: v1alpha1.Group, Kind: "GPUPool"}:        func() client.Object { return &v1alpha1.GPUPool{} },
	{Kind: "Pod"}:                                   func() client.Object { return &corev1.Pod{} },
	{Group: "apps", Kind: "Deployment"}:             func() client.Object { return &appsv1.Deployment{} },
	{Group: "apps", Kind: "StatefulSet"}:            func() client.Object { return &appsv1.StatefulSet{} },
	{Group: "apps", Kind: "ReplicaSet"}:             func() client.Object { return &appsv1.ReplicaSet{} },
	{Group: "apps", Kind: "DaemonSet"}:              func() client.Object { return &appsv1.DaemonSet{} },
	{Group: "batch", Kind: "Job"}:                   func() client.Object { return &batchv1.Job{} },
	{Group: "batch", Kind: "CronJob"}:               func() client.Object { return &batchv1.CronJob{} },
	{Kind: "PersistentVolumeClaim"}:                 func() client.Object { return &corev1.PersistentVolumeClaim{} },
	{Kind: "PersistentVolume"}:                      func() client.Object { return &corev1.PersistentVolume{} },
	{Kind: "Namespace"}:                             func() client.Object { return &corev1.Namespace{} },
	{Group: "storage.k8s.io", Kind: "StorageClass"}: func() client.Object { return &storagev1.StorageClass{} },
}

// reader collects objects and remembers where each was read.
type reader struct {
	set  *Set
	seen map[string]place
}

// document reads one document: an object or a List of objects.
func (r *reader) document(text []byte, at place) error {
	raw, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return fmt.Errorf("%s: %w", at, err)
	}
	var object map[string]any
	if err := json.Unmarshal(raw, &object); err != nil || object == nil {
		return fmt.Errorf("%s: not an object; write apiVersion, kind and metadata", at)
	}
	items, isList := object["items"].([]any)
	if kind, _ := object["kind"].(string); !isList || !strings.HasSuffix(kind, "List") {
		return r.object(object, at)
	}
	var errs []error
	for i, item := range items {
		at.item = i + 1
		m, ok := item.(map[string]any)
		if !ok {
			errs = append(errs, fmt.Errorf("%s: not an object; write apiVersion, kind and metadata", at))
			continue
		}
		errs = append(errs, r.object(m, at))
	}
	return errors.Join(errs...)
}

func (r *reader) object(object map[string]any, at place) error {
	u := &unstructured.Unstructured{Object: object}
	gvk := u.GroupVersionKind()
	switch {
	case gvk.Kind == "":
		return fmt.Errorf("%s: kind: missing; write one, such as Deployment", at)
	case gvk.Version == "":
		return fmt.Errorf("%s: apiVersion: missing; write one, such as apps/v1", at)
	}
	create, ok := read[gvk.GroupKind()]
	isClass := gvk.GroupKind() == catalogprovider.NodeClassGVK.GroupKind()
	if !ok && !isClass {
		r.set.Ignored = append(r.set.Ignored, Ignored{Kind: gvk.GroupKind().String(), Name: fullName(u), From: at.String(), Reason: "kind has no part in a plan"})
		return nil
	}
	if u.GetName() == "" {
		return fmt.Errorf("%s: %s: metadata.name: missing; objects need a name", at, gvk.Kind)
	}
	name := fmt.Sprintf("%s %s", gvk.Kind, fullName(u))
	key := gvk.GroupKind().String() + " " + fullName(u)
	if before, ok := r.seen[key]; ok {
		return fmt.Errorf("%s: %s: metadata.name: already given in %s; give each object once", at, name, before)
	}
	r.seen[key] = at
	if isClass {
		class, err := catalogprovider.ParseNodeClass(u)
		if err != nil {
			return fmt.Errorf("%s: %s: %w", at, name, err)
		}
		r.set.NodeClasses = append(r.set.NodeClasses, class)
		return nil
	}
	into := create()
	if err := decode(object, into); err != nil {
		return fmt.Errorf("%s: %s: %w", at, name, err)
	}
	if err := r.set.add(into, at); err != nil {
		return fmt.Errorf("%s: %s: %w", at, name, err)
	}
	return nil
}

func fullName(o client.Object) string {
	if o.GetNamespace() == "" {
		return o.GetName()
	}
	return o.GetNamespace() + "/" + o.GetName()
}

var strict = serializer.NewSerializerWithOptions(serializer.DefaultMetaFactory, scheme, scheme, serializer.SerializerOptions{Strict: true})

// decode reads an object strictly. The error names the field.
func decode(object map[string]any, into client.Object) error {
	if err := defaultAndValidate(object); err != nil {
		return err
	}
	err := decodeAs(object, into)
	if err == nil {
		return nil
	}
	if runtime.IsStrictDecodingError(err) {
		text := strings.TrimPrefix(err.Error(), "strict decoding error: ")
		return fmt.Errorf("%s; remove or correct it", text)
	}
	if path, value := faulty(object, into); path != "" {
		return fmt.Errorf("%s: %s does not fit, %w", path, value, err)
	}
	return err
}

func decodeAs(object map[string]any, into client.Object) error {
	raw, err := json.Marshal(object)
	if err != nil {
		return err
	}
	got, gvk, err := strict.Decode(raw, nil, into)
	if runtime.IsNotRegisteredError(err) {
		version, _ := object["apiVersion"].(string)
		return fmt.Errorf("apiVersion: %q is a version that is not read; convert the object to the current one", version)
	}
	if err == nil && got != runtime.Object(into) {
		return fmt.Errorf("apiVersion: %q is a version that is not read; convert the object to the current one", gvk.GroupVersion())
	}
	return err
}

// faulty finds the value without which the object can be decoded.
func faulty(object map[string]any, like client.Object) (path, value string) {
	try := func() bool {
		fresh, ok := like.DeepCopyObject().(client.Object)
		return ok && (decodeAs(object, fresh) == nil || runtime.IsStrictDecodingError(decodeAs(object, fresh)))
	}
	var visit func(v any, at string, set func(any)) bool
	visit = func(v any, at string, set func(any)) bool {
		switch t := v.(type) {
		case map[string]any:
			for _, k := range sortedKeys(t) {
				child := k
				if at != "" {
					child = at + "." + k
				}
				if visit(t[k], child, func(with any) { t[k] = with }) {
					return true
				}
			}
		case []any:
			for i := range t {
				if visit(t[i], fmt.Sprintf("%s[%d]", at, i), func(with any) { t[i] = with }) {
					return true
				}
			}
		}
		if set == nil {
			return false
		}
		set(nil)
		ok := try()
		set(v)
		if ok {
			text, _ := json.Marshal(v)
			path, value = at, string(text)
		}
		return ok
	}
	visit(object, "", nil)
	return path, value
}
