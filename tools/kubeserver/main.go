// Command kubeserver builds the pinned kube-apiserver, kube-controller-manager and
// etcd from Go modules into the user's cache folder, for tests that use a Kubernetes
// cluster. The first run takes about six minutes on two cores; later runs find the
// programs and do nothing.
package main

import (
	"fmt"
	"os"

	"github.com/fairlead/fairlead/tools/kubeserver/kube"
)

func main() {
	dir, err := kube.Programs().Build(os.Stderr)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(dir)
}
