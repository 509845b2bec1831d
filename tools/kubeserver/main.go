// Command kubeserver builds the pinned kube-apiserver, kube-controller-manager
// and etcd into the user's cache folder, once, from Go modules: the tests of
// what uses a Kubernetes cluster find them there. It takes about six minutes on
// two cores, and then nothing.
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
