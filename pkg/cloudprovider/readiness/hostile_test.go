package readiness_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/readiness"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/health"
)

const hostileReports = 10_000

// TestHostileReports changes a sound report in ten thousand ways, some of the text and some
// of the values. None may panic, and none may open the gate unless it says, in the words of
// an independent reading, that this boot has 8 healthy H100 without partitions.
func TestHostileReports(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 11))
	sound := string(mustEncode(h100s(boot)))
	opened := 0
	for i := range hostileReports {
		text := sound
		for range 1 + r.IntN(4) {
			text = mutate(r, text)
		}
		s := p5()
		s.Node.Annotations[v1alpha1.ReportAnnotationKey] = text
		verdict := verifier.Verify(s)
		if verdict.State == readiness.StateVerified {
			opened++
			if why := implausible(text); why != "" {
				t.Fatalf("report %d opened the gate, %s\n%s", i, why, text)
			}
		}
		verifier.Verify(verified(s))
		if len(verdict.Message) > 1024 || strings.ContainsFunc(verdict.Message, func(c rune) bool { return c < ' ' || c > '~' }) {
			t.Fatalf("report %d: message %q", i, verdict.Message)
		}
	}
	if opened == 0 || opened > hostileReports/2 {
		t.Errorf("%d of %d changed reports opened the gate: the changes are not what they should be", opened, hostileReports)
	}
}

func mustEncode(r health.Report) []byte {
	data, err := health.Encode(r)
	if err != nil {
		panic(err)
	}
	return data
}

// implausible reads the report loosely, as a map.
func implausible(text string) string {
	var r map[string]any
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return "it is no JSON"
	}
	gpus, _ := r["gpus"].([]any)
	switch {
	case r["boot"] != boot:
		return "it is of another boot"
	case r["state"] != "Ready":
		return "it is not ready"
	case len(gpus) != 8:
		return fmt.Sprintf("it has %d GPUs", len(gpus))
	}
	for _, g := range gpus {
		gpu := g.(map[string]any)
		memory, _ := gpu["mib"].(float64)
		product, _ := gpu["product"].(string)
		if strings.Join(strings.Fields(product), "-") != "NVIDIA-H100-80GB-HBM3" || memory < 77000 || memory > 86000 || gpu["lost"] == true || gpu["mig"] == true {
			return fmt.Sprintf("it has the GPU %v", gpu)
		}
	}
	return ""
}

var fragments = []string{
	"", "-1", "1e308", "99999999999999999999", "null", "true", `"\u0000"`, "{}", "[]", `{"i":0}`, "NaN", `"Ready"`, `"Unhealthy"`, `"lost":true,`,
	`"mig":true,"parts":["7g.80gb@0+8"],`, `"v":1,`, `"gpus":[],`, boot, reboot, "\xff\xfe", strings.Repeat("[", 50), strings.Repeat("9", 2000),
}

func mutate(r *rand.Rand, text string) string {
	at := r.IntN(len(text) + 1)
	switch r.IntN(6) {
	case 0: // cut out
		end := min(len(text), at+1+r.IntN(40))
		return text[:at] + text[end:]
	case 1: // double
		end := min(len(text), at+1+r.IntN(400))
		return text[:end] + text[at:]
	case 2: // one byte
		if at == len(text) {
			return text
		}
		return text[:at] + string([]byte{byte(r.IntN(256))}) + text[at+1:]
	case 3: // a digit
		if i := strings.IndexAny(text[at:], "0123456789"); i >= 0 {
			return text[:at+i] + fmt.Sprint(r.IntN(10)) + text[at+i+1:]
		}
		return text
	case 4: // blanks, which change nothing
		if i := strings.IndexAny(text[at:], "{,["); i >= 0 {
			return text[:at+i+1] + " " + text[at+i+1:]
		}
		return text
	}
	return text[:at] + fragments[r.IntN(len(fragments))] + text[at:]
}

func FuzzVerify(f *testing.F) {
	f.Add(string(mustEncode(h100s(boot))), "True", "Verified", "8 GPUs verified")
	f.Add(`{"v":1}`, "False", "GPULost", "\x00")
	f.Add("", "Unknown", "", "")
	f.Fuzz(func(t *testing.T, text, status, reason, message string) {
		s := p5()
		s.Node.Annotations[v1alpha1.ReportAnnotationKey] = text
		condition(s.Node, corev1.NodeCondition{Type: v1alpha1.NodeConditionGPUReady, Status: corev1.ConditionStatus(status), Reason: reason, Message: message})
		verdict := verifier.Verify(s)
		if verdict.State != readiness.StateVerified {
			return
		}
		if why := implausible(text); status != "True" || why != "" {
			t.Errorf("opened with condition %s, %s", status, why)
		}
	})
}
