package operator

import (
	"context"
	"fmt"

	awsv1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"github.com/samber/lo"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/adoption"
)

// completeAdopted adds the annotations that the AWS provider's Create returns and
// its List does not. Without them a later change of the EC2NodeClass would not
// count as drift of the adopted node.
func completeAdopted(reader client.Reader, caBundle *string) adoption.Complete {
	return func(ctx context.Context, wanted, adopted *karpv1.NodeClaim) error {
		nodeClass := &awsv1.EC2NodeClass{}
		if err := reader.Get(ctx, types.NamespacedName{Name: wanted.Spec.NodeClassRef.Name}, nodeClass); err != nil {
			return fmt.Errorf("getting ec2nodeclass %q, %w", wanted.Spec.NodeClassRef.Name, err)
		}
		adopted.Annotations = lo.Assign(adopted.Annotations, map[string]string{
			awsv1.AnnotationEC2NodeClassHash:        nodeClass.Hash(caBundle),
			awsv1.AnnotationEC2NodeClassHashVersion: awsv1.EC2NodeClassHashVersion,
			awsv1.AnnotationInstanceProfile:         nodeClass.Status.InstanceProfile,
		})
		return nil
	}
}
