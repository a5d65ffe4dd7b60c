package controlplane

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

const (
	adminUser   = "admin"
	adminGroup  = "system:masters"
	contextName = "karpenter-gpu"
)

// RESTConfig returns a configuration for an administrator (group system:masters) without
// a limit on requests. The caller owns it.
func (cp *ControlPlane) RESTConfig() *rest.Config { return rest.CopyConfig(cp.admin) }

// Kubeconfig is the path of the administrator's kubeconfig, for kubectl and controllers.
func (cp *ControlPlane) Kubeconfig() string { return cp.kubeconfigPath(adminUser) }

func (cp *ControlPlane) kubeconfigPath(user string) string {
	return filepath.Join(cp.dir, user+".kubeconfig")
}

// AddUser returns a configuration for a user with groups, as a client certificate. The
// user may do what RBAC grants: at first no more than any authenticated user.
func (cp *ControlPlane) AddUser(name string, groups ...string) (*rest.Config, error) {
	if name == "" {
		return nil, errors.New("adding a user, the name is empty: name it")
	}
	pair, err := cp.pki.client(name, groups)
	if err != nil {
		return nil, fmt.Errorf("adding the user %q, %w", name, err)
	}
	return cp.config(pair), nil
}

// TokenConfig returns a configuration for the bearer of a token, such as one of a service account.
func (cp *ControlPlane) TokenConfig(token string) *rest.Config {
	config := cp.config(keyPair{})
	config.BearerToken = token
	return config
}

func (cp *ControlPlane) config(pair keyPair) *rest.Config {
	return &rest.Config{
		Host:            "https://" + hostPort(cp.ports.apiServer),
		TLSClientConfig: rest.TLSClientConfig{CAData: cp.pki.caPEM, CertData: pair.cert, KeyData: pair.key},
		// Loopback: the server's priority and fairness is limit enough.
		QPS: -1,
	}
}

// WriteKubeconfig writes a configuration as a kubeconfig that needs no other file and
// that only this system user may read.
func WriteKubeconfig(path string, config *rest.Config) error {
	kubeconfig := clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{contextName: {
			Server:                   config.Host,
			CertificateAuthorityData: config.CAData,
		}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{contextName: {
			ClientCertificateData: config.CertData,
			ClientKeyData:         config.KeyData,
			Token:                 config.BearerToken,
		}},
		Contexts:       map[string]*clientcmdapi.Context{contextName: {Cluster: contextName, AuthInfo: contextName}},
		CurrentContext: contextName,
	}
	data, err := clientcmd.Write(kubeconfig)
	if err != nil {
		return fmt.Errorf("encoding a kubeconfig, %w", err)
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		return fmt.Errorf("writing a kubeconfig, %w", err)
	}
	return nil
}

// writeFiles writes certificates, kubeconfigs and KWOK's configuration.
func (cp *ControlPlane) writeFiles() error {
	server, err := cp.pki.server()
	if err != nil {
		return err
	}
	admin, err := cp.pki.client(adminUser, []string{adminGroup})
	if err != nil {
		return err
	}
	cp.admin = cp.config(admin)
	errs := []error{
		cp.pki.writePair("server", server),
		cp.pki.writePair(adminUser, admin),
		WriteKubeconfig(cp.Kubeconfig(), cp.admin),
	}
	for _, c := range []Component{ControllerManager, Scheduler} {
		if cp.opts.has(c) {
			errs = append(errs, cp.writeComponentKubeconfig(c))
		}
	}
	if cp.opts.has(KWOK) {
		errs = append(errs, cp.writeKWOKConfig())
	}
	return errors.Join(errs...)
}

// writeComponentKubeconfig gives a component the identity that RBAC's built-in roles know.
func (cp *ControlPlane) writeComponentKubeconfig(c Component) error {
	config, err := cp.AddUser("system:" + string(c))
	if err != nil {
		return err
	}
	return WriteKubeconfig(cp.kubeconfigPath(string(c)), config)
}
