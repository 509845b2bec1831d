package launchconfig

import (
	"errors"
	"time"

	"github.com/fairlead/fairlead/pkg/config"
	"github.com/fairlead/fairlead/pkg/runnerspec"
)

// DockerSteps are containers of a Docker Engine.
type DockerSteps struct {
	config.Docker
	StopGrace time.Duration // for a step that the engine itself stops; 0: the executor's own
}

// DockerOf is how containers are started. The password of a registry does not
// travel: the agent has it in a file.
func DockerOf(r *runnerspec.DockerRunner, env config.Docker) (DockerSteps, error) {
	j := r.Job
	d := DockerSteps{Docker: env, StopGrace: time.Duration(j.StopGrace)}
	over(&d.Host, r.Host)
	over(&d.Image, j.Image)
	over(&d.Pull, j.ImagePullPolicy)
	over(&d.CPU, config.MilliCPU(j.CPULimit))
	over(&d.Memory, config.Bytes(j.MemoryLimit))
	overList(&d.Volumes, j.Volumes)
	overList(&d.ExtraHosts, j.ExtraHosts)
	over(&d.Network, j.Network)
	overList(&d.Labels, pairs(j.Labels))
	if j.Registry == nil {
		return d, nil
	}
	d.Username = j.Registry.Username
	if d.PasswordFile == "" {
		return d, errors.New("the password of the registry is not sent to agents: put it into a file on the agent's machine, and name that in FAIRLEAD_DOCKER_REGISTRY_PASSWORD_FILE")
	}
	return d, nil
}
