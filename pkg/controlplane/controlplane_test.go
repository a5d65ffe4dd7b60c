package controlplane_test

import (
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"syscall"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/controlplane"
)

func connect(config *rest.Config) client.Client {
	GinkgoHelper()
	api, err := client.New(config, client.Options{})
	Expect(err).ToNot(HaveOccurred())
	return api
}

func configMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
}

func address(cp *controlplane.ControlPlane) string {
	GinkgoHelper()
	parsed, err := url.Parse(cp.URL())
	Expect(err).ToNot(HaveOccurred())
	return parsed.Host
}

var _ = Describe("ControlPlane", func() {
	It("should start API only, and leave nothing behind", func(ctx SpecContext) {
		temp := GinkgoT().TempDir()
		GinkgoT().Setenv("TMPDIR", temp)
		cp, err := controlplane.Start(ctx, controlplane.Options{Components: controlplane.APIOnly()})
		Expect(err).ToNot(HaveOccurred())
		Expect(cp.Dir()).To(HavePrefix(temp))
		Expect(connect(cp.RESTConfig()).Create(ctx, configMap("here"))).To(Succeed())
		Expect(pidsOf(cp)).To(HaveLen(2))
		etcd, apiServer := cp.Process(controlplane.Etcd), cp.Process(controlplane.APIServer)

		By("accepting a pod although nobody makes service accounts")
		Expect(connect(cp.RESTConfig()).Create(ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "pod"},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "none"}}},
		})).To(Succeed())

		By("refusing to restart what was not started")
		Expect(cp.Restart(ctx, controlplane.KWOK)).To(MatchError("restarting kwok, it is not among the components started: etcd, kube-apiserver"))

		Expect(cp.Stop(ctx)).To(Succeed())
		Expect(alive(etcd.Pid())).To(BeFalse())
		Expect(alive(apiServer.Pid())).To(BeFalse())
		Expect(refused(address(cp))).To(BeTrue())
		Expect(files(temp)).To(BeEmpty())
		Expect(cp.Stop(ctx)).To(Succeed())
	})

	It("should take a fixed port, keep its Dir to itself, and find its objects and credentials again", func(ctx SpecContext) {
		ports, err := controlplane.FreePorts(1)
		Expect(err).ToNot(HaveOccurred())
		opts := controlplane.Options{Components: controlplane.APIOnly(), APIServerPort: ports[0], Dir: filepath.Join(GinkgoT().TempDir(), "plane")}
		cp, err := controlplane.Start(ctx, opts)
		Expect(err).ToNot(HaveOccurred())
		DeferCleanup(cp.Stop)
		Expect(connect(cp.RESTConfig()).Create(ctx, configMap("kept"))).To(Succeed())
		credentials := cp.RESTConfig()

		By("refusing a second plane in the same directory")
		second := opts
		second.APIServerPort = 0
		_, err = controlplane.Start(ctx, second)
		Expect(err).To(MatchError(And(
			ContainSubstring("Dir: %s is in use by the control plane of process %d", opts.Dir, os.Getpid()),
			ContainSubstring("stop that one or choose another directory"),
		)))
		Expect(cp.Stop(ctx)).To(Succeed())
		Expect(filepath.Join(opts.Dir, "logs", "kube-apiserver.log")).To(BeARegularFile())

		cp, err = controlplane.Start(ctx, opts)
		Expect(err).ToNot(HaveOccurred())
		DeferCleanup(cp.Stop)
		Expect(connect(credentials).Get(ctx, client.ObjectKey{Namespace: "default", Name: "kept"}, &corev1.ConfigMap{})).To(Succeed())

		By("letting users do what RBAC grants and no more")
		bob, err := cp.AddUser("bob", "readers")
		Expect(err).ToNot(HaveOccurred())
		err = connect(bob).Get(ctx, client.ObjectKey{Namespace: "default", Name: "kept"}, &corev1.ConfigMap{})
		Expect(apierrors.IsForbidden(err)).To(BeTrue())
		Expect(err).To(MatchError(ContainSubstring(`User "bob" cannot get resource "configmaps"`)))
		_, err = cp.AddUser("")
		Expect(err).To(MatchError("adding a user, the name is empty: name it"))

		By("writing kubeconfigs that work")
		path := filepath.Join(GinkgoT().TempDir(), "bob")
		Expect(controlplane.WriteKubeconfig(path, bob)).To(Succeed())
		for file, allowed := range map[string]bool{path: false, cp.Kubeconfig(): true} {
			config, err := clientcmd.BuildConfigFromFlags("", file)
			Expect(err).ToNot(HaveOccurred())
			err = connect(config).Get(ctx, client.ObjectKey{Namespace: "default", Name: "kept"}, &corev1.ConfigMap{})
			Expect(err == nil).To(Equal(allowed), "%v", err)
		}

		By("telling a wrong token from a right certificate")
		_, err = client.New(cp.TokenConfig("made-up"), client.Options{})
		Expect(err).ToNot(HaveOccurred())
		err = connect(cp.TokenConfig("made-up")).Get(ctx, client.ObjectKey{Namespace: "default", Name: "kept"}, &corev1.ConfigMap{})
		Expect(apierrors.IsUnauthorized(err)).To(BeTrue(), "%v", err)

		By("coming back after a crash of the server")
		Expect(cp.Process(controlplane.APIServer).Kill()).To(Succeed())
		Expect(cp.Restart(ctx, controlplane.APIServer)).To(Succeed())
		Expect(connect(credentials).Get(ctx, client.ObjectKey{Namespace: "default", Name: "kept"}, &corev1.ConfigMap{})).To(Succeed())
		Expect(cp.Stop(ctx)).To(Succeed())
	})

	It("should undo a start that fails, and quote the log of what failed", func(ctx SpecContext) {
		temp := GinkgoT().TempDir()
		GinkgoT().Setenv("TMPDIR", temp)
		_, err := controlplane.Start(ctx, controlplane.Options{
			Components: controlplane.APIOnly(),
			ExtraArgs:  map[controlplane.Component][]string{controlplane.APIServer: {"--no-such-flag"}},
		})
		var failed *controlplane.StartError
		Expect(errors.As(err, &failed)).To(BeTrue())
		Expect(failed.Name).To(Equal("kube-apiserver"))
		Expect(err).To(MatchError(ContainSubstring("unknown flag: --no-such-flag")))
		Expect(files(temp)).To(BeEmpty())
	})

	It("should leave nothing of a whole stack whose parent was killed, and start on its data again", func(ctx SpecContext) {
		if runtime.GOOS != "linux" {
			Skip("only Linux binds a child's life to its parent's")
		}
		dir := filepath.Join(GinkgoT().TempDir(), "plane")
		parent, pids := startParent(ctx, dir)
		Expect(pids).To(HaveLen(5))
		config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(dir, "admin.kubeconfig"))
		Expect(err).ToNot(HaveOccurred())
		Expect(connect(config).Create(ctx, configMap("kept"))).To(Succeed())
		Expect(parent.Process.Kill()).To(Succeed())
		Expect(parent.Wait()).ToNot(Succeed())
		for _, pid := range pids {
			Eventually(func() string { return processState(pid) }).Should(BeElementOf("", "Z"))
		}
		server, err := url.Parse(config.Host)
		Expect(err).ToNot(HaveOccurred())
		Eventually(func() bool { return refused(server.Host) }).Should(BeTrue())

		By("stopping in order on SIGINT the next time")
		parent, pids = startParent(ctx, dir)
		config, err = clientcmd.BuildConfigFromFlags("", filepath.Join(dir, "admin.kubeconfig"))
		Expect(err).ToNot(HaveOccurred())
		Expect(connect(config).Get(ctx, client.ObjectKey{Namespace: "default", Name: "kept"}, &corev1.ConfigMap{})).To(Succeed())
		Expect(parent.Process.Signal(syscall.SIGINT)).To(Succeed())
		Expect(parent.Wait()).To(Succeed())
		for _, pid := range pids {
			Expect(alive(pid)).To(BeFalse())
		}
	})
})
