package reference_test

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/internal/reference"
)

var update = flag.Bool("update", false, "rewrite docs/reference/gpupool.md")

var page = filepath.Join("..", "..", "..", "..", "docs", "reference", "gpupool.md")

func fields() []reference.Field {
	return reference.Fields(*apis.CRDs[0].Spec.Versions[0].Schema.OpenAPIV3Schema)
}

func TestPageIsThatOfTheCRD(t *testing.T) {
	want := reference.Page(apis.CRDs[0])
	if *update {
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("the page is not that of the CRD, run `go test ./pkg/apis/internal/reference -update` (-want +got):\n%s", diff)
	}
}

// The walk of this test is apart from that of Fields, so that a field which Fields forgets
// is missed here.
func TestPageHasEveryField(t *testing.T) {
	content, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	var visit func(path string, schema apiextensionsv1.JSONSchemaProps)
	seen := 0
	visit = func(path string, schema apiextensionsv1.JSONSchemaProps) {
		if schema.Items != nil {
			visit(path+"[]", *schema.Items.Schema)
			return
		}
		for name, child := range schema.Properties {
			at := strings.TrimPrefix(path+"."+name, ".")
			if path == "" && name != "spec" && name != "status" {
				continue
			}
			seen++
			if !strings.Contains(string(content), "### `"+at+"`\n") {
				t.Errorf("the page has no section for %s", at)
			}
			visit(at, child)
		}
	}
	visit("", *apis.CRDs[0].Spec.Versions[0].Schema.OpenAPIV3Schema)
	if seen < 80 {
		t.Errorf("%d fields were visited, the API has more", seen)
	}
}

func TestEveryFieldIsExplained(t *testing.T) {
	for _, field := range fields() {
		name := field.Path[strings.LastIndex(field.Path, ".")+1:]
		text := field.Schema.Description
		if strings.HasPrefix(field.Path, "status.conditions[]") {
			if text == "" {
				t.Errorf("%s has no text", field.Path)
			}
			continue
		}
		if !strings.HasPrefix(text, name+" ") {
			t.Errorf("the text of %s should begin with %q: %q", field.Path, name, text)
		}
		if !strings.HasSuffix(text, ".") {
			t.Errorf("the text of %s should end a sentence: %q", field.Path, text)
		}
	}
}

func TestTextsTellDefaults(t *testing.T) {
	for _, field := range fields() {
		if field.Schema.Default == nil || string(field.Schema.Default.Raw) == "{}" {
			continue
		}
		value := strings.Trim(string(field.Schema.Default.Raw), `"`)
		text := strings.Join(strings.Fields(field.Schema.Description), " ")
		if !strings.Contains(text, "Defaults to "+value+".") {
			t.Errorf("the text of %s should say %q: %q", field.Path, "Defaults to "+value+".", text)
		}
	}
}

func TestEveryRuleSaysWhatToDo(t *testing.T) {
	root := reference.Field{Schema: *apis.CRDs[0].Spec.Versions[0].Schema.OpenAPIV3Schema}
	for _, field := range append(fields(), root) {
		for _, message := range field.Rules() {
			// A bare "failed rule" has no words of ours; the shortest useful one is a sentence.
			if len(message) < 40 || strings.Contains(message, "self.") {
				t.Errorf("a rule of %q says only %q", field.Path, message)
			}
		}
	}
}

func TestListsAndStringsAreBounded(t *testing.T) {
	for _, field := range fields() {
		if field.Schema.Items != nil && field.Schema.MaxItems == nil {
			t.Errorf("%s has no greatest length", field.Path)
		}
		if strings.HasPrefix(field.Path, "spec.") && field.Schema.Type == "string" && len(field.Schema.Enum) == 0 && field.Schema.MaxLength == nil {
			t.Errorf("%s has no greatest length", field.Path)
		}
	}
}
