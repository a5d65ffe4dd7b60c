package printer

import (
	"fmt"
	"io"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/cli/converter"
)

// Converted writes converted objects: documents of YAML, each with a comment that says
// what it was made from and what is missing, or a List in JSON.
func Converted(w io.Writer, f Format, r *converter.Result) error {
	if f == JSON {
		items := []any{}
		for _, o := range r.Objects {
			items = append(items, o.Object)
		}
		return Encode(w, JSON, map[string]any{"apiVersion": "v1", "kind": "List", "items": items})
	}
	var b strings.Builder
	for i, o := range r.Objects {
		if i > 0 {
			b.WriteString("---\n")
		}
		fmt.Fprintf(&b, "# From %s.\n", o.From)
		if len(o.Losses) > 0 {
			b.WriteString("# Not carried over, or with another meaning:\n")
		}
		for _, l := range o.Losses {
			b.WriteString(comment(l))
		}
		text, err := yaml.Marshal(o.Object)
		if err != nil {
			return fmt.Errorf("encoding %s %s, %w", o.GetKind(), o.GetName(), err)
		}
		b.Write(text)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// comment writes one loss; whatever line breaks the input had in it stay in the comment.
func comment(l converter.Loss) string {
	text := l.Message
	if l.Field != "" {
		text = l.Field + ": " + text
	}
	return "# - " + strings.ReplaceAll(text, "\n", "\n#   ") + "\n"
}
