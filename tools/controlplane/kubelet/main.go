// Command kubelet is Kubernetes' own, for the real node of make e2e-node. It is a binary apart
// from the control plane's: few need it, and it would make theirs larger by two thirds.
//
// Called with --stamp alone it answers with the digest of what it was built from.
package main

import (
	"context"
	"fmt"
	"os"

	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	"k8s.io/kubernetes/cmd/kubelet/app"
)

// stamp is set by build.sh.
var stamp = "unknown"

func main() {
	if len(os.Args) == 2 && os.Args[1] == "--stamp" {
		fmt.Println(stamp)
		return
	}
	os.Exit(cli.Run(app.NewKubeletCommand(context.Background())))
}
