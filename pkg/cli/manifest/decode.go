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
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	serializer "k8s.io/apimachinery/pkg/runtime/serializer/json"
	utiljson "k8s.io/apimachinery/pkg/util/json" // whole numbers stay whole, as the rules expect
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/yaml"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/catalogprovider"
)

var scheme = NewScheme()

// NewScheme returns a scheme of all kinds that are read, Nodes, NodeClaims and
// CustomResourceDefinitions too.
func NewScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	karpenter := schema.GroupVersion{Group: "karpenter.sh", Version: "v1"}
	metav1.AddToGroupVersion(s, karpenter)
	s.AddKnownTypes(karpenter, &karpv1.NodePool{}, &karpv1.NodePoolList{}, &karpv1.NodeClaim{}, &karpv1.NodeClaimList{})
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, appsv1.AddToScheme, batchv1.AddToScheme, storagev1.AddToScheme, v1alpha1.AddToScheme, apiextensionsv1.AddToScheme} {
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
func (v visitor) document(text []byte, at place) error {
	raw, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return fmt.Errorf("%s: %w", at, err)
	}
	var object map[string]any
	if err := utiljson.Unmarshal(raw, &object); err != nil || object == nil {
		return fmt.Errorf("%s: not an object; write apiVersion, kind and metadata", at)
	}
	items, isList := object["items"].([]any)
	if kind, _ := object["kind"].(string); !isList || !strings.HasSuffix(kind, "List") {
		return v(object, at)
	}
	var errs []error
	for i, item := range items {
		at.item = i + 1
		m, ok := item.(map[string]any)
		if !ok {
			errs = append(errs, fmt.Errorf("%s: not an object; write apiVersion, kind and metadata", at))
			continue
		}
		errs = append(errs, v(m, at))
	}
	return errors.Join(errs...)
}

func (r *reader) object(object map[string]any, at place) error {
	u := &unstructured.Unstructured{Object: object}
	if err := typed(u, at); err != nil {
		return err
	}
	gvk := u.GroupVersionKind()
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
	if err := r.take(u, create, at); err != nil {
		return fmt.Errorf("%s: %s: %w", at, name, err)
	}
	return nil
}

// typed says whether an object tells its kind and version.
func typed(u *unstructured.Unstructured, at place) error {
	switch gvk := u.GroupVersionKind(); {
	case gvk.Kind == "":
		return fmt.Errorf("%s: kind: missing; write one, such as Deployment", at)
	case gvk.Version == "":
		return fmt.Errorf("%s: apiVersion: missing; write one, such as apps/v1", at)
	}
	return nil
}

// take decodes an object and adds it to the set; create is nil for an EC2NodeClass.
func (r *reader) take(u *unstructured.Unstructured, create func() client.Object, at place) error {
	if create == nil {
		class, err := catalogprovider.ParseNodeClass(u)
		if err != nil {
			return err
		}
		r.set.NodeClasses = append(r.set.NodeClasses, class)
		return nil
	}
	into := create()
	if err := Decode(u.Object, into); err != nil {
		return err
	}
	return r.set.add(into, at)
}

func fullName(o client.Object) string {
	if o.GetNamespace() == "" {
		return o.GetName()
	}
	return o.GetNamespace() + "/" + o.GetName()
}

var strict = serializer.NewSerializerWithOptions(serializer.DefaultMetaFactory, scheme, scheme, serializer.SerializerOptions{Strict: true})

// Decode reads an object strictly, after it has given a NodePool or a GPUPool the defaults
// of its definition and held it to the rules there. The error names the field.
func Decode(object map[string]any, into client.Object) error {
	if gvk := (&unstructured.Unstructured{Object: object}).GroupVersionKind(); !scheme.Recognizes(gvk) {
		return fmt.Errorf("apiVersion: %q is a version that is not read; convert the object to the current one", gvk.GroupVersion())
	}
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
	_, _, err = strict.Decode(raw, nil, into)
	return err
}

// faulty finds the value without which the object can be decoded: its path, and the
// value as JSON.
func faulty(object map[string]any, like client.Object) (path, value string) {
	decodes := func() bool {
		fresh, ok := like.DeepCopyObject().(client.Object)
		if !ok {
			return false
		}
		err := decodeAs(object, fresh)
		return err == nil || runtime.IsStrictDecodingError(err)
	}
	for _, l := range leaves(object, "") {
		l.set(nil)
		ok := decodes()
		l.set(l.value)
		if ok {
			text, _ := json.Marshal(l.value)
			return l.path, string(text)
		}
	}
	return "", ""
}

// leaf is a value in an object, innermost first.
type leaf struct {
	path  string
	value any
	set   func(any)
}

func leaves(v any, at string) []leaf {
	var out []leaf
	switch t := v.(type) {
	case map[string]any:
		for _, k := range sortedKeys(t) {
			path := strings.TrimPrefix(at+"."+k, ".")
			out = append(append(out, leaves(t[k], path)...), leaf{path, t[k], func(with any) { t[k] = with }})
		}
	case []any:
		for i := range t {
			path := fmt.Sprintf("%s[%d]", at, i)
			out = append(append(out, leaves(t[i], path)...), leaf{path, t[i], func(with any) { t[i] = with }})
		}
	}
	return out
}
