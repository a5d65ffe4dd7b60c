// Package reference writes the page docs/reference/gpupool.md from the CRD: every field
// with its type, default, bounds, rules and text. The CRD is the one source, so the page,
// kubectl explain and the API server cannot disagree; a test compares the page with what
// is written here, and rewrites it when run with -update.
package reference

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// Field is one field of the API.
type Field struct {
	// Path is the place as a person writes it: "spec.warm[].gpus".
	Path string
	// Required says that it has to be set where its parent is.
	Required bool
	// Schema is the field's own schema; it belongs to the CRD.
	Schema apiextensionsv1.JSONSchemaProps
}

// Fields lists the fields of spec and status below a schema, parents first and children by
// name. What lies inside of a condition is left out but for its type: it is Kubernetes' own.
func Fields(root apiextensionsv1.JSONSchemaProps) []Field {
	var fields []Field
	for _, name := range []string{"spec", "status"} {
		fields = append(fields, walk(name, false, root.Properties[name])...)
	}
	return fields
}

func walk(path string, required bool, schema apiextensionsv1.JSONSchemaProps) []Field {
	fields := []Field{{Path: path, Required: required, Schema: schema}}
	inner := schema
	if schema.Items != nil {
		inner, path = *schema.Items.Schema, path+"[]"
	}
	for _, name := range slices.Sorted(maps.Keys(inner.Properties)) {
		fields = append(fields, walk(path+"."+name, slices.Contains(inner.Required, name), inner.Properties[name])...)
	}
	return fields
}

// Type is the type in words: "string", "list of objects", "int32".
func (f Field) Type() string {
	if f.Schema.Items != nil {
		return "list of " + typeName(*f.Schema.Items.Schema) + "s"
	}
	return typeName(f.Schema)
}

// Bounds are the limits of the schema in words; empty when there are none.
func (f Field) Bounds() string {
	bounds := bounds(f.Schema)
	if f.Schema.Items != nil {
		for _, b := range schemaBounds(*f.Schema.Items.Schema) {
			bounds = append(bounds, "each "+b)
		}
	}
	return strings.Join(bounds, "; ")
}

// Rules are the messages of the CEL rules on the field, those on its items included.
func (f Field) Rules() []string {
	rules := f.Schema.XValidations
	if f.Schema.Items != nil {
		rules = slices.Concat(rules, f.Schema.Items.Schema.XValidations)
	}
	messages := make([]string, len(rules))
	for i, rule := range rules {
		messages[i] = rule.Message
	}
	return messages
}

// Page writes the page of a CRD with one version.
func Page(crd *apiextensionsv1.CustomResourceDefinition) string {
	version := crd.Spec.Versions[0]
	root := *version.Schema.OpenAPIV3Schema
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n\n", crd.Spec.Names.Kind)
	b.WriteString("Written from the CRD by `go test ./pkg/apis/internal/reference -update`; do not edit.\n\n")
	fmt.Fprintf(&b, "`apiVersion: %s/%s`, `kind: %s`, cluster-scoped, short name `%s`.\n\n",
		crd.Spec.Group, version.Name, crd.Spec.Names.Kind, strings.Join(crd.Spec.Names.ShortNames, "`, `"))
	fmt.Fprintf(&b, "%s\n", paragraph(root.Description))
	for _, rule := range (Field{Schema: root}).Rules() {
		fmt.Fprintf(&b, "\n- Rule: %s.\n", rule)
	}
	b.WriteString("\n## Columns of `kubectl get`\n\n| Column | Meaning | Shown |\n|---|---|---|\n")
	for _, column := range version.AdditionalPrinterColumns {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", column.Name, column.Description, map[bool]string{true: "always", false: "with `-o wide`"}[column.Priority == 0])
	}
	b.WriteString("\n## Fields\n")
	for _, field := range Fields(root) {
		writeField(&b, field)
	}
	return b.String()
}

func writeField(b *strings.Builder, f Field) {
	fmt.Fprintf(b, "\n### `%s`\n\n*%s*", f.Path, f.Type())
	if f.Required {
		b.WriteString(", required")
	}
	if f.Schema.Default != nil {
		fmt.Fprintf(b, ", default `%s`", f.Schema.Default.Raw)
	}
	if bounds := f.Bounds(); bounds != "" {
		fmt.Fprintf(b, ", %s", bounds)
	}
	fmt.Fprintf(b, "\n\n%s\n", paragraph(f.Schema.Description))
	if rules := f.Rules(); len(rules) > 0 {
		b.WriteString("\n")
		for _, rule := range rules {
			fmt.Fprintf(b, "- Rule: %s.\n", rule)
		}
	}
}

// bounds are the limits of a field, those of a list included.
func bounds(s apiextensionsv1.JSONSchemaProps) []string {
	bounds := schemaBounds(s)
	switch {
	case s.MinItems != nil && s.MaxItems != nil:
		bounds = append(bounds, fmt.Sprintf("%d to %d items", *s.MinItems, *s.MaxItems))
	case s.MaxItems != nil:
		bounds = append(bounds, fmt.Sprintf("at most %d items", *s.MaxItems))
	}
	switch list := s.XListType; {
	case list != nil && *list == "set":
		bounds = append(bounds, "no item twice")
	case list != nil && *list == "map":
		bounds = append(bounds, "one item per `"+strings.Join(s.XListMapKeys, "`, `")+"`")
	}
	return bounds
}

// schemaBounds are the limits of one value.
func schemaBounds(s apiextensionsv1.JSONSchemaProps) []string {
	var bounds []string
	if len(s.Enum) > 0 {
		values := make([]string, len(s.Enum))
		for i, value := range s.Enum {
			values[i] = "`" + strings.Trim(string(value.Raw), `"`) + "`"
		}
		bounds = append(bounds, "one of "+strings.Join(values, ", "))
	}
	if s.Minimum != nil {
		bounds = append(bounds, fmt.Sprintf("at least %d", int64(*s.Minimum)))
	}
	if s.Maximum != nil {
		bounds = append(bounds, fmt.Sprintf("at most %d", int64(*s.Maximum)))
	}
	if s.MinLength != nil {
		bounds = append(bounds, fmt.Sprintf("at least %d characters", *s.MinLength))
	}
	if s.MaxLength != nil {
		bounds = append(bounds, fmt.Sprintf("at most %d characters", *s.MaxLength))
	}
	return bounds
}

func typeName(s apiextensionsv1.JSONSchemaProps) string {
	switch s.Format {
	case "int32", "int64":
		return s.Format
	case "date-time":
		return "time"
	}
	return s.Type
}

// paragraph joins the lines of a comment and keeps its blank lines; a field in angle
// brackets would be HTML.
func paragraph(text string) string {
	blocks := strings.Split(text, "\n\n")
	for i, block := range blocks {
		blocks[i] = strings.Join(strings.Fields(block), " ")
	}
	return strings.NewReplacer("<", "&lt;", ">", "&gt;").Replace(strings.Join(blocks, "\n\n"))
}
