package aws

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
)

// describeCluster answers EKS: GET /clusters/{name}.
func (s *Server) describeCluster(w http.ResponseWriter, r *http.Request) {
	requestID := s.begin(r.Context())
	name := r.PathValue("name")
	err := s.count("DescribeCluster")
	if err == nil && name != s.opts.ClusterName {
		err = newError("ResourceNotFoundException", "No cluster found for name: %s.", name)
	}
	w.Header().Set("X-Amzn-RequestId", requestID)
	w.Header().Set("Content-Type", "application/json")
	if err != nil {
		api := s.failed(err)
		w.Header().Set("X-Amzn-ErrorType", api.Code)
		w.WriteHeader(api.status())
		_ = json.NewEncoder(w).Encode(map[string]string{"message": api.Message})
		return
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"cluster": map[string]any{
		"name": name, "arn": "arn:aws:eks:" + s.opts.Region + ":" + s.opts.AccountID + ":cluster/" + name,
		"version": s.opts.KubernetesVersion, "endpoint": s.opts.ClusterEndpoint, "status": "ACTIVE",
		"kubernetesNetworkConfig": map[string]string{"serviceIpv4Cidr": s.opts.ServiceCIDR, "ipFamily": "ipv4"},
		"certificateAuthority":    map[string]string{"data": base64.StdEncoding.EncodeToString([]byte("simulated"))},
		"resourcesVpcConfig": map[string]any{"vpcId": s.vpcID(), "clusterSecurityGroupId": s.groupID(),
			"securityGroupIds": []string{s.groupID()}},
	}})
}
