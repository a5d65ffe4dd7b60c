package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

// requestTimeout bounds one request to the API server.
const requestTimeout = 10 * time.Second

// NodePublisher writes to one Node through patches of its status and its metadata.
// It uses a bare REST client for one API group: a clientset with all its schemes
// costs more memory than the rest of the agent.
type NodePublisher struct {
	client rest.Interface
	node   string
}

var _ Publisher = (*NodePublisher)(nil)

// NewNodePublisher returns a publisher for the Node of this name.
func NewNodePublisher(config *rest.Config, node string) (*NodePublisher, error) {
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("making the scheme, %w", err)
	}
	config = rest.CopyConfig(config)
	config.APIPath = "/api"
	config.GroupVersion = &corev1.SchemeGroupVersion
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	config.Timeout = requestTimeout
	if config.UserAgent == "" {
		config.UserAgent = "karpenter-gpu-agent"
	}
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("making the client, %w", err)
	}
	return &NodePublisher{client: client, node: node}, nil
}

// Load implements Publisher. A Node that is not registered yet carries nothing.
func (p *NodePublisher) Load(ctx context.Context) (Carried, error) {
	node := &corev1.Node{}
	err := p.client.Get().Resource("nodes").Name(p.node).Do(ctx).Into(node)
	if apierrors.IsNotFound(err) {
		return Carried{}, nil
	}
	if err != nil {
		return Carried{}, fmt.Errorf("getting node %s, %w", p.node, err)
	}
	return carriedBy(node), nil
}

// PublishReport implements Publisher.
func (p *NodePublisher) PublishReport(ctx context.Context, report []byte) error {
	_, err := p.patch(ctx, types.MergePatchType, map[string]any{
		"metadata": map[string]any{"annotations": map[string]string{ReportAnnotation: string(report)}},
	})
	return err
}

// PublishCondition implements Publisher. A strategic merge by type leaves the
// conditions of others alone.
func (p *NodePublisher) PublishCondition(ctx context.Context, c Condition) (Carried, error) {
	condition := corev1.NodeCondition{
		Type: ConditionType, Status: corev1.ConditionStatus(c.Status), Reason: c.Reason, Message: c.Message,
		LastTransitionTime: metav1.NewTime(c.LastTransition), LastHeartbeatTime: metav1.NewTime(c.LastHeartbeat),
	}
	node, err := p.patch(ctx, types.StrategicMergePatchType, map[string]any{
		"status": map[string]any{"conditions": []corev1.NodeCondition{condition}},
	}, "status")
	if err != nil {
		return Carried{}, err
	}
	return carriedBy(node), nil
}

func (p *NodePublisher) patch(ctx context.Context, kind types.PatchType, body any, subresource ...string) (*corev1.Node, error) {
	data, err := json.Marshal(body)
	if err != nil {
		return nil, fmt.Errorf("writing patch, %w", err)
	}
	node := &corev1.Node{}
	err = p.client.Patch(kind).Resource("nodes").Name(p.node).SubResource(subresource...).Body(data).Do(ctx).Into(node)
	if err != nil {
		what := strings.Join(append([]string{p.node}, subresource...), " ")
		return nil, fmt.Errorf("patching node %s, %w", what, err)
	}
	return node, nil
}

func carriedBy(node *corev1.Node) Carried {
	return Carried{Report: []byte(node.Annotations[ReportAnnotation]), Policy: []byte(node.Annotations[PolicyAnnotation])}
}
