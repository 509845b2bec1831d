package kube

import "github.com/fairlead/fairlead/tools/pinned"

// version is the version of Kubernetes in tools/kubernetes/go.mod.
const version = "v1.36.3"

// Programs returns the programs of a cluster without nodes.
func Programs() pinned.Programs {
	return pinned.Programs{
		Folder: "kubernetes-" + version, Module: "kubernetes", LDFlags: "-X k8s.io/component-base/version.gitVersion=" + version,
		Packages: map[string]string{
			"etcd":                    "go.etcd.io/etcd/server/v3",
			"kube-apiserver":          "k8s.io/kubernetes/cmd/kube-apiserver",
			"kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
		},
	}
}
