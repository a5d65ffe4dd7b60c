package converter

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/cli/manifest"
)

// source is an object from which fields are taken. What is left at the end was not
// understood.
type source struct {
	object string
	from   string
	fields map[string]any
	// prefix is put before paths in losses, for objects within objects.
	prefix string
	losses []Loss
	err    error
}

func newSource(d manifest.Document) *source {
	fields := d.Object.DeepCopy().Object
	for _, key := range []string{"apiVersion", "kind", "metadata", "status"} {
		delete(fields, key)
	}
	return &source{object: name(d), from: d.From, fields: fields}
}

// take removes a field and returns it; nil where it is absent. T is the type of JSON:
// string, bool, map[string]any or []any. Another type is an error, which is kept.
func take[T any](s *source, path string) (value T, ok bool) {
	steps := strings.Split(path, ".")
	at := s.fields
	for _, step := range steps[:len(steps)-1] {
		next, isMap := at[step].(map[string]any)
		if !isMap {
			return value, false
		}
		at = next
	}
	last := steps[len(steps)-1]
	raw, found := at[last]
	if !found || raw == nil {
		return value, false
	}
	delete(at, last)
	value, ok = raw.(T)
	if !ok && s.err == nil {
		s.err = fmt.Errorf("%s: %s: %s: %s does not fit here", s.from, s.object, s.prefix+path, compact(raw))
	}
	return value, ok
}

// takeText takes a string, number or quantity as text.
func takeText(s *source, path string) string {
	value, ok := take[any](s, path)
	if !ok {
		return ""
	}
	if text, isText := value.(string); isText {
		return text
	}
	return compact(value)
}

// lose reports a field that was taken, or all of the object.
func (s *source) lose(path, format string, args ...any) {
	field := path
	if field != "" {
		field = s.prefix + path
	}
	s.losses = append(s.losses, Loss{Object: s.object, From: s.from, Field: field, Message: fmt.Sprintf(format, args...)})
}

// drop takes a field and, where it was there, reports that it has no counterpart.
func (s *source) drop(path, format string, args ...any) {
	if _, ok := take[any](s, path); ok {
		s.lose(path, format, args...)
	}
}

// finish reports what is left.
func (s *source) finish() ([]Loss, error) {
	for _, path := range leaves(s.fields, "") {
		s.lose(path, "has no counterpart")
	}
	return s.losses, s.err
}

// leaves are the paths of what is not an object, sorted. Empty objects say nothing.
func leaves(fields map[string]any, at string) []string {
	var out []string
	for _, key := range slices.Sorted(maps.Keys(fields)) {
		path := strings.TrimPrefix(at+"."+key, ".")
		switch t := fields[key].(type) {
		case map[string]any:
			out = append(out, leaves(t, path)...)
		case nil:
		default:
			out = append(out, path)
		}
	}
	return out
}

func compact(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v) // values of YAML marshal
	}
	return string(text)
}

// ofTheServer are annotations that a server or a controller wrote.
var ofTheServer = []string{
	"kubectl.kubernetes.io/last-applied-configuration", "karpenter.sh/nodepool-hash", "karpenter.sh/nodepool-hash-version",
	"karpenter.k8s.aws/ec2nodeclass-hash", "karpenter.k8s.aws/ec2nodeclass-hash-version", "compatibility.karpenter.sh/v1beta1-nodeclass-reference",
	"compatibility.karpenter.sh/v1beta1-kubelet-conversion",
}

// metadata is what a person wrote of the metadata: name, labels and annotations.
func metadata(u *unstructured.Unstructured) map[string]any {
	out := map[string]any{"name": u.GetName()}
	if labels := u.GetLabels(); len(labels) > 0 {
		out["labels"] = anyMap(labels)
	}
	annotations := u.GetAnnotations()
	maps.DeleteFunc(annotations, func(key, _ string) bool { return slices.Contains(ofTheServer, key) })
	if len(annotations) > 0 {
		out["annotations"] = anyMap(annotations)
	}
	return out
}

func anyMap(in map[string]string) map[string]any {
	out := make(map[string]any, len(in))
	for k, v := range in {
		out[k] = v
	}
	return out
}

// put sets a field where there is something to set.
func put(into map[string]any, key string, value any, ok bool) {
	if ok {
		into[key] = value
	}
}
