// Command controlplane is etcd, kube-apiserver, kube-scheduler and
// kube-controller-manager in one binary, which acts as the one by whose name it is
// called: build.sh makes a link for each. One binary holds once what the four share,
// 140 MB in place of 331, and links once.
//
// It is a module of its own, so that k8s.io/kubernetes and its list of replacements stay
// out of the library's module graph. KWOK comes from the same module as a tool.
//
// Called as anything else it answers --stamp with the digest of what it was built from.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	_ "time/tzdata"
)

// stamp is set by build.sh: a digest of its inputs, by which it knows what it may keep.
var stamp = "unknown"

func main() {
	switch name := filepath.Base(os.Args[0]); name {
	case "etcd":
		etcdmain.Main(os.Args)
	case "kube-apiserver":
		os.Exit(cli.Run(apiserver.NewAPIServerCommand()))
	case "kube-scheduler":
		os.Exit(cli.Run(scheduler.NewSchedulerCommand()))
	case "kube-controller-manager":
		os.Exit(cli.Run(controllermanager.NewControllerManagerCommand()))
	default:
		if len(os.Args) == 2 && os.Args[1] == "--stamp" {
			fmt.Println(stamp)
			return
		}
		fmt.Fprintf(os.Stderr, "unknown program %q: call this binary as etcd, kube-apiserver, kube-scheduler or kube-controller-manager\n", name)
		os.Exit(2)
	}
}
