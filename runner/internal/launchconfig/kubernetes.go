package launchconfig

import (
	"encoding/json"
	"fmt"
	"maps"
	"time"

	"github.com/fairlead/fairlead/pkg/config"
	"github.com/fairlead/fairlead/pkg/runnerspec"
)

// KubernetesSteps are Jobs of a cluster.
type KubernetesSteps struct {
	config.Kubernetes
	// PodTemplate is an overlay on the pod, JSON; nil: that of PodTemplateFile, if
	// there is one.
	PodTemplate []byte
	Secrets     map[string]string // variable to name/key of a Secret in the namespace
	Reach       Reach
}

// Reach is a cluster that is reached from beside the control plane: one of the
// fields; none: the cluster in which the agent is, or that of a kubeconfig.
type Reach struct {
	Kubernetes *runnerspec.KubernetesCluster
	EKS        *runnerspec.EKSCluster
	AKS        *runnerspec.AKSCluster
	GKE        *runnerspec.GKECluster
}

// Outside reports whether a cluster is named at all.
func (r Reach) Outside() bool { return r != Reach{} }

func (s *Setup) kubernetes(r runnerspec.Common, j runnerspec.KubernetesJob, env Environment) {
	s.common(r, j.JobCommon, env)
	s.Kubernetes = KubernetesOf(j, env.Kubernetes)
}

// KubernetesOf is how jobs are started in any cluster.
func KubernetesOf(j runnerspec.KubernetesJob, env config.Kubernetes) KubernetesSteps {
	k := KubernetesSteps{Kubernetes: env, Secrets: maps.Clone(j.Secrets)}
	over(&k.Namespace, j.Namespace)
	over(&k.ServiceAccount, j.ServiceAccount)
	over(&k.Image, j.Image)
	over(&k.Pull, j.ImagePullPolicy)
	overList(&k.PullSecrets, j.PullSecrets)
	over(&k.CPURequest, config.MilliCPU(j.CPURequest))
	over(&k.CPULimit, config.MilliCPU(j.CPULimit))
	over(&k.MemoryRequest, config.Bytes(j.MemoryRequest))
	over(&k.MemoryLimit, config.Bytes(j.MemoryLimit))
	over(&k.Disk, config.Bytes(j.Disk))
	overList(&k.NodeSelector, pairs(j.NodeSelector))
	overList(&k.Labels, pairs(j.Labels))
	over(&k.StartTimeout, time.Duration(j.StartTimeout))
	over(&k.StopGrace, time.Duration(j.StopGrace))
	if len(j.PodTemplate) > 0 {
		b, err := json.Marshal(j.PodTemplate)
		if err != nil {
			panic(fmt.Sprintf("setup: a pod template is no JSON: %v", err)) // it was read from some
		}
		k.PodTemplate, k.PodTemplateFile = b, ""
	}
	return k
}
