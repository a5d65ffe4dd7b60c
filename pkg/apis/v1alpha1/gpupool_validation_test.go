package v1alpha1_test

import (
	"strings"
	"testing"
	"time"

	"github.com/samber/lo"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
)

// names knows three layouts, of which all-balanced is not of one kind, and two profiles.
type names struct{}

func (names) Layout(name string) (known, homogeneous bool) {
	homogeneous, known = map[string]bool{"all-1g.10gb": true, "all-3g.40gb": true, "all-balanced": false}[name]
	return known, homogeneous
}

func (names) Profile(name string) bool { return name == "1g.10gb" || name == "3g.40gb" }

func mig(m v1alpha1.MIG) v1alpha1.GPUPoolSpec {
	return v1alpha1.GPUPoolSpec{Partitioning: &v1alpha1.Partitioning{MIG: &m}}
}

func window(w v1alpha1.WarmWindow) v1alpha1.GPUPoolSpec {
	if w.Duration.Duration == 0 {
		w.Duration.Duration = time.Hour
	}
	return v1alpha1.GPUPoolSpec{Warm: []v1alpha1.WarmCapacity{{
		Name: "day", GPUs: lo.ToPtr[int32](1), Schedule: &v1alpha1.WarmSchedule{Windows: []v1alpha1.WarmWindow{w}},
	}}}
}

func TestRuntimeValidate(t *testing.T) {
	for name, tc := range map[string]struct {
		spec v1alpha1.GPUPoolSpec
		// wantErrs are parts of the error, each of which has to be there; none means valid.
		wantErrs []string
	}{
		"an empty spec is valid":          {},
		"known layouts are valid":         {spec: mig(v1alpha1.MIG{Layouts: []string{"all-1g.10gb", "all-balanced"}})},
		"known profiles are valid":        {spec: mig(v1alpha1.MIG{Profiles: []string{"1g.10gb", "3g.40gb"}})},
		"Single with alike partitions":    {spec: mig(v1alpha1.MIG{Strategy: v1alpha1.MIGStrategySingle, Layouts: []string{"all-3g.40gb"}})},
		"an unknown layout":               {spec: mig(v1alpha1.MIG{Layouts: []string{"all-1g.10gb", "all-9g"}}), wantErrs: []string{`spec.partitioning.mig.layouts[1]: Invalid value: "all-9g"`, "use one that mig-parted generates"}},
		"an unknown profile":              {spec: mig(v1alpha1.MIG{Profiles: []string{"1g.11gb"}}), wantErrs: []string{`spec.partitioning.mig.profiles[0]: Invalid value: "1g.11gb"`, "nvidia-smi mig -lgip"}},
		"Single with unlike partitions":   {spec: mig(v1alpha1.MIG{Strategy: v1alpha1.MIGStrategySingle, Layouts: []string{"all-balanced"}}), wantErrs: []string{"mig.layouts[0]", "use a layout of one profile, or strategy Mixed"}},
		"an unknown profile held warm":    {spec: v1alpha1.GPUPoolSpec{Warm: []v1alpha1.WarmCapacity{{Name: "a", Partitions: []v1alpha1.PartitionCount{{Profile: "2g.9gb", Count: 1}}}}}, wantErrs: []string{`spec.warm[0].partitions[0].profile: Invalid value: "2g.9gb"`}},
		"a weekday morning in Berlin":     {spec: window(v1alpha1.WarmWindow{Start: "0 7 * * 1-5", TimeZone: "Europe/Berlin"})},
		"a leap day comes":                {spec: window(v1alpha1.WarmWindow{Start: "0 0 29 2 *"})},
		"a day that never comes":          {spec: window(v1alpha1.WarmWindow{Start: "0 0 30 2 *"}), wantErrs: []string{"spec.warm[0].schedule.windows[0].start", "no such day ever comes"}},
		"a cron line out of range":        {spec: window(v1alpha1.WarmWindow{Start: "0 25 * * *"}), wantErrs: []string{"windows[0].start", "write five cron fields"}},
		"a cron line with its own zone":   {spec: window(v1alpha1.WarmWindow{Start: "CRON_TZ=UTC 0 7 * * *"}), wantErrs: []string{"belongs in timeZone"}},
		"a cron line from process start":  {spec: window(v1alpha1.WarmWindow{Start: "@every 5m"}), wantErrs: []string{"@every has no fixed start"}},
		"an unknown zone":                 {spec: window(v1alpha1.WarmWindow{Start: "@daily", TimeZone: "Europe/Atlantis"}), wantErrs: []string{`timeZone: Invalid value: "Europe/Atlantis"`, "write one such as UTC or Europe/Berlin"}},
		"the machine's own zone":          {spec: window(v1alpha1.WarmWindow{Start: "@daily", TimeZone: "Local"}), wantErrs: []string{`timeZone: Invalid value: "Local"`}},
		"a window longer than a week":     {spec: window(v1alpha1.WarmWindow{Start: "@daily", Duration: metav1.Duration{Duration: 169 * time.Hour}}), wantErrs: []string{`windows[0].duration: Invalid value: "169h0m0s"`, "must be from 1m0s to 168h0m0s"}},
		"Registration by default is fine": {spec: v1alpha1.GPUPoolSpec{Readiness: v1alpha1.Readiness{Gate: v1alpha1.GateRegistration}}},
		"Registration at 15m":             {spec: v1alpha1.GPUPoolSpec{Readiness: v1alpha1.Readiness{Gate: v1alpha1.GateRegistration, Deadline: &metav1.Duration{Duration: 15 * time.Minute}}}, wantErrs: []string{"spec.readiness.deadline", "must be less than 15m"}},
		"a deadline of a second":          {spec: v1alpha1.GPUPoolSpec{Readiness: v1alpha1.Readiness{Deadline: &metav1.Duration{Duration: time.Second}}}, wantErrs: []string{"spec.readiness.deadline", "must be from 1m0s to 24h0m0s"}},
		"versions in words": {spec: v1alpha1.GPUPoolSpec{Readiness: v1alpha1.Readiness{MinDriverVersion: "R550", MinCUDAVersion: "twelve"}},
			wantErrs: []string{`spec.readiness.minDriverVersion: Invalid value: "R550"`, `spec.readiness.minCUDAVersion: Invalid value: "twelve"`}},
		"a check without time":       {spec: v1alpha1.GPUPoolSpec{Readiness: v1alpha1.Readiness{Checks: []v1alpha1.Check{{Name: v1alpha1.CheckECC, Timeout: &metav1.Duration{}}}}}, wantErrs: []string{"spec.readiness.checks[0].timeout", "must be from 1s to 5m0s"}},
		"a check that calls nothing": {spec: v1alpha1.GPUPoolSpec{Readiness: v1alpha1.Readiness{Checks: []v1alpha1.Check{{Name: v1alpha1.CheckXID, Timeout: &metav1.Duration{Duration: time.Second}}}}}, wantErrs: []string{`spec.readiness.checks[0].timeout: Invalid value: "1s"`, "check xid makes no call of its own"}},
		"a negative empty time":      {spec: v1alpha1.GPUPoolSpec{Reclaim: v1alpha1.Reclaim{EmptyAfter: &metav1.Duration{Duration: -1}}}, wantErrs: []string{"spec.reclaim.emptyAfter", "must be from 0s to 24h0m0s"}},
		"prices in words": {spec: v1alpha1.GPUPoolSpec{Limits: v1alpha1.Limits{PricePerHour: lo.ToPtr("much")}, Warm: []v1alpha1.WarmCapacity{{Name: "a", MaxPricePerHour: lo.ToPtr("")}}},
			wantErrs: []string{"spec.warm[0].maxPricePerHour", `spec.limits.pricePerHour: Invalid value: "much"`}},
	} {
		t.Run(name, func(t *testing.T) {
			err := (&v1alpha1.GPUPool{Spec: tc.spec}).RuntimeValidate(names{})
			if (err != nil) != (len(tc.wantErrs) > 0) {
				t.Fatalf("RuntimeValidate() = %v, want %q", err, tc.wantErrs)
			}
			for _, part := range tc.wantErrs {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("RuntimeValidate() = %v, want %q in it", err, part)
				}
			}
		})
	}
}

func TestRuntimeValidateWithoutNames(t *testing.T) {
	pool := &v1alpha1.GPUPool{Spec: mig(v1alpha1.MIG{Layouts: []string{"all-9g"}})}
	if err := pool.RuntimeValidate(nil); err != nil {
		t.Errorf("RuntimeValidate(nil) = %v, want names of layouts unchecked", err)
	}
}
