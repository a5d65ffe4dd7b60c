package options_test

import (
	"context"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coreoptions "sigs.k8s.io/karpenter/pkg/operator/options"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/readiness"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/operator/options"
)

func parse(t *testing.T, args ...string) (*options.Options, error) {
	t.Helper()
	fs := &coreoptions.FlagSet{FlagSet: flag.NewFlagSet("test", flag.ContinueOnError)}
	o := &options.Options{}
	o.AddFlags(fs)
	return o, o.Parse(fs, args...)
}

func TestParse(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "catalog.yaml")
	if err := os.WriteFile(file, []byte("models: []\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		args    []string
		env     map[string]string
		want    options.Options
		wantErr string
	}{
		"no flag behaves as stock":             {},
		"a flag turns prediction on":           {args: []string{"--predict-gpu-labels"}, want: options.Options{PredictGPULabels: true}},
		"an environment variable does as well": {env: map[string]string{"PREDICT_GPU_LABELS": "true"}, want: options.Options{PredictGPULabels: true}},
		"a catalogue file that exists":         {args: []string{"--gpu-catalog-file", file}, want: options.Options{CatalogFile: file}},
		"a catalogue file that does not exist": {args: []string{"--gpu-catalog-file", file + ".gone"}, wantErr: "mount the ConfigMap at that path or leave the flag out"},
		"another toleration":                   {args: []string{"--gpu-repair-toleration", "1m"}, want: options.Options{GPURepairToleration: time.Minute}},
		"a toleration that is none":            {args: []string{"--gpu-repair-toleration", "-1m"}, wantErr: "--gpu-repair-toleration=-1m0s is negative, use 0s or more"},
		"another namespace":                    {args: []string{"--gpu-operator-namespace", "nvidia"}, want: options.Options{GPUOperatorNamespace: "nvidia"}},
		"a namespace that is none":             {args: []string{"--gpu-operator-namespace", "Not/One"}, wantErr: `--gpu-operator-namespace="Not/One" is no name of a namespace`},
		"a catalogue file that is a directory": {args: []string{"--gpu-catalog-file", dir}, wantErr: "is a directory, name the YAML file in it"},
	} {
		t.Run(name, func(t *testing.T) {
			for k, v := range tc.env {
				t.Setenv(k, v)
			}
			got, err := parse(t, tc.args...)
			if tc.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tc.wantErr) {
					t.Fatalf("error %v, want one that contains %q", err, tc.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if tc.want.GPUOperatorNamespace == "" {
				tc.want.GPUOperatorNamespace = options.DefaultGPUOperatorNamespace
			}
			if tc.want.GPURepairToleration == 0 {
				tc.want.GPURepairToleration = readiness.DefaultRepairToleration
			}
			if diff := cmp.Diff(tc.want, *got); diff != "" {
				t.Errorf("options differ (-want +got):\n%s", diff)
			}
		})
	}
}

func TestFromContext(t *testing.T) {
	if got := options.FromContext(context.Background()); *got != (options.Options{}) {
		t.Errorf("got %+v from an empty context, want the defaults", got)
	}
	want := &options.Options{PredictGPULabels: true}
	if got := options.FromContext(want.ToContext(context.Background())); got != want {
		t.Errorf("got %+v, want what was stored", got)
	}
}
