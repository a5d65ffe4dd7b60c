package nodeconfig

import (
	"context"
	"errors"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Names of the ConfigMaps. They are to be named in the GPU Operator's ClusterPolicy
// as migManager.config.name and devicePlugin.config.name.
const (
	LayoutsName = "karpenter-gpu-mig-parted"
	PluginName  = "karpenter-gpu-device-plugin"
)

const (
	managedByKey = "app.kubernetes.io/managed-by"
	managedBy    = "karpenter-gpu"
)

// Publisher writes the ConfigMaps.
type Publisher struct {
	// reader is not a cache: a cache would hold every ConfigMap of the cluster.
	reader    client.Reader
	writer    client.Writer
	namespace string
}

// NewPublisher returns a Publisher for a namespace. The reader should read from the
// API server.
func NewPublisher(reader client.Reader, writer client.Writer, namespace string) *Publisher {
	return &Publisher{reader: reader, writer: writer, namespace: namespace}
}

// Publish brings both ConfigMaps to the content, where any pool or node needs them.
// A ConfigMap that somebody else made is not touched, and an error.
func (p *Publisher) Publish(ctx context.Context, c Content) error {
	layouts, plugin := c.needed()
	var errs []error
	if layouts {
		errs = append(errs, p.publish(ctx, LayoutsName, c.layouts))
	}
	if plugin {
		errs = append(errs, p.publish(ctx, PluginName, func(before map[string]string) (map[string]string, error) { return c.plugin(before), nil }))
	}
	return errors.Join(errs...)
}

func (p *Publisher) publish(ctx context.Context, name string, render func(before map[string]string) (map[string]string, error)) error {
	found := &corev1.ConfigMap{}
	err := p.reader.Get(ctx, types.NamespacedName{Namespace: p.namespace, Name: name}, found)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("getting configmap %s/%s, %w", p.namespace, name, err)
	}
	if err == nil && found.Labels[managedByKey] != managedBy {
		return fmt.Errorf("configmap %s/%s exists and is not ours; label it %s=%s to hand it over, or delete it", p.namespace, name, managedByKey, managedBy)
	}
	data, failed := render(found.Data)
	if failed != nil {
		return fmt.Errorf("rendering configmap %s/%s, %w", p.namespace, name, failed)
	}
	switch {
	case apierrors.IsNotFound(err):
		return p.create(ctx, name, data)
	case maps.Equal(found.Data, data):
		return nil
	}
	updated := found.DeepCopy()
	updated.Data = data
	if err := p.writer.Update(ctx, updated); err != nil { // fails if it has changed since
		return fmt.Errorf("updating configmap %s/%s, %w", p.namespace, name, err)
	}
	return nil
}

func (p *Publisher) create(ctx context.Context, name string, data map[string]string) error {
	err := p.writer.Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: name, Labels: map[string]string{managedByKey: managedBy}},
		Data:       data,
	})
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("creating configmap %s/%s, the namespace does not exist; install the GPU Operator there, or set --gpu-operator-namespace, %w", p.namespace, name, err)
	}
	if err != nil {
		return fmt.Errorf("creating configmap %s/%s, %w", p.namespace, name, err)
	}
	return nil
}
