package kwoknode_test

import (
	"context"
	"encoding/base64"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/controlplane"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/sim/aws"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/sim/aws/kwoknode"
)

func instance(userData string) aws.Instance {
	return aws.Instance{
		ID: "i-1", Type: "g5.xlarge", Zone: "us-east-1b", ZoneID: "use1-az2", Region: "us-east-1", PrivateIP: "10.0.32.4",
		PrivateDNS: "ip-10-0-32-4.ec2.internal",
		Shape:      aws.InstanceType{Name: "g5.xlarge", VCPU: 4, MemoryMiB: 16384, Arch: "amd64", GPUs: 1, MaxENIs: 4, IPv4PerENI: 15, LocalNVMeGB: 250},
		Template:   aws.TemplateData{UserData: base64.StdEncoding.EncodeToString([]byte(userData)), VolumeGiB: 100},
	}
}

func amounts(list corev1.ResourceList) map[string]string {
	out := map[string]string{}
	for name, quantity := range list {
		out[string(name)] = quantity.String()
	}
	return out
}

// The figures are those that the AWS provider v1.15.0 computes for g5.xlarge on AL2023:
// 16384 Mi less 7.5 %; (4*(15-1)+2) = 58 pods; kube-reserved 80m and 893Mi; eviction 100Mi.
func TestNodeHasTheSizeThatKarpenterExpects(t *testing.T) {
	node, err := kwoknode.New(nil, kwoknode.Options{}).Node(instance(""))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"cpu": "4", "memory": "15155Mi", "ephemeral-storage": "100Gi", "pods": "58", "hugepages-1Gi": "0", "hugepages-2Mi": "0"}
	if diff := cmp.Diff(want, amounts(node.Status.Capacity)); diff != "" {
		t.Errorf("capacity: %s", diff)
	}
	want = map[string]string{"cpu": "3920m", "memory": "14162Mi", "ephemeral-storage": "89Gi", "pods": "58", "hugepages-1Gi": "0", "hugepages-2Mi": "0"}
	if diff := cmp.Diff(want, amounts(node.Status.Allocatable)); diff != "" {
		t.Errorf("allocatable: %s", diff)
	}
}

func TestNodeIsWhatAKubeletRegisters(t *testing.T) {
	node, err := kwoknode.New(nil, kwoknode.Options{}).Node(instance(
		"#!/bin/sh\n/etc/eks/bootstrap.sh --kubelet-extra-args '--node-labels=\"karpenter.sh/nodepool=gpu\" --register-with-taints=\"karpenter.sh/unregistered:NoExecute\" --max-pods=20'"))
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{
		"karpenter.sh/nodepool": "gpu", "node.kubernetes.io/instance-type": "g5.xlarge", "topology.kubernetes.io/zone": "us-east-1b",
		"topology.kubernetes.io/region": "us-east-1", "topology.k8s.aws/zone-id": "use1-az2", "kubernetes.io/arch": "amd64",
		"kubernetes.io/os": "linux", "kubernetes.io/hostname": "ip-10-0-32-4.ec2.internal",
	} {
		if got := node.Labels[key]; got != want {
			t.Errorf("label %s is %q, want %q", key, got, want)
		}
	}
	if node.Spec.ProviderID != "aws:///us-east-1b/i-1" {
		t.Errorf("provider ID is %q", node.Spec.ProviderID)
	}
	if diff := cmp.Diff([]corev1.Taint{{Key: "karpenter.sh/unregistered", Effect: corev1.TaintEffectNoExecute}}, node.Spec.Taints); diff != "" {
		t.Error(diff)
	}
	if _, ok := node.Status.Capacity["nvidia.com/gpu"]; ok {
		t.Error("the kubelet reports GPUs before any device plugin runs")
	}
	if got := node.Status.Capacity.Pods().Value(); got != 20 {
		t.Errorf("pods is %d, want 20 by --max-pods", got)
	}
}

func TestNodeRejectsBadReservations(t *testing.T) {
	for flag, want := range map[string]string{
		"--kube-reserved=\"memory=lots\"":                `reading reserved memory "lots"`,
		"--eviction-hard=\"memory.available<x%\"":        `reading eviction threshold memory.available "x%"`,
		"--register-with-taints=\"karpenter.sh/broken\"": "has no effect",
	} {
		_, err := kwoknode.New(nil, kwoknode.Options{}).Node(instance("#!/bin/sh\n/etc/eks/bootstrap.sh --kubelet-extra-args '" + flag + "'"))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got error %v, want one with %q", flag, err, want)
		}
	}
}

func TestLauncherMakesDownsAndRemovesNodes(t *testing.T) {
	ctx := context.Background()
	api := fake.NewClientBuilder().WithIndex(&corev1.Pod{}, "spec.nodeName", func(o client.Object) []string {
		return []string{o.(*corev1.Pod).Spec.NodeName}
	}).Build()
	l := kwoknode.New(api, kwoknode.Options{})
	i, node := instance(""), &corev1.Node{}
	key := client.ObjectKey{Name: i.PrivateDNS}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(l.Fail(ctx, i)) // there is no node yet
	must(l.Launch(ctx, i))
	must(l.Fail(ctx, i))
	must(api.Get(ctx, key, node))
	if node.Annotations[controlplane.DownAnnotation] != "true" {
		t.Errorf("a failed machine's node has annotations %v", node.Annotations)
	}
	node.Status.Capacity["nvidia.com/gpu"], node.Status.Allocatable["nvidia.com/gpu"] = resource.MustParse("1"), resource.MustParse("1")
	must(api.Update(ctx, node))
	firstBoot, boot := node.Status.NodeInfo.BootID, time.Unix(1000, 0)
	i.BootAt = &boot
	must(l.Launch(ctx, i))
	node = &corev1.Node{}
	must(api.Get(ctx, key, node))
	if gpus := node.Status.Allocatable["nvidia.com/gpu"]; node.Status.NodeInfo.BootID == firstBoot || !gpus.IsZero() || node.Status.Allocatable.Cpu().IsZero() {
		t.Errorf("a rebooted machine's node is of boot %s with %v", node.Status.NodeInfo.BootID, node.Status.Allocatable)
	}
	if node.Annotations[controlplane.DownAnnotation] == "true" {
		t.Error("a rebooted machine's node is still down")
	}
	must(l.Terminate(ctx, i))
	must(l.Terminate(ctx, i))
	if err := api.Get(ctx, key, node); !apierrors.IsNotFound(err) {
		t.Errorf("getting the node of a gone instance: %v", err)
	}
}
