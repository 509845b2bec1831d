package diagnosis

import "github.com/fairlead/fairlead/pkg/fairlead"

// This file has a constructor for each action. A test parses each action with the real
// command line.

func showDeployment(id fairlead.DeploymentID, effect string) Step {
	return step(fairlead.VerbDeploymentShow, fairlead.Args{Deployment: string(id)}, effect)
}

func followDeployment(id fairlead.DeploymentID) Step {
	return step(fairlead.VerbDeploymentFollow, fairlead.Args{Deployment: string(id)}, "shows its progress")
}

func approve(id fairlead.DeploymentID, effect string, components ...string) Step {
	return step(fairlead.VerbDeploymentApprove, fairlead.Args{Deployment: string(id), Components: components}, effect)
}

func sign(id fairlead.DeploymentID, component, effect string) Step {
	return step(fairlead.VerbDeploymentSign, fairlead.Args{Deployment: string(id), Component: component}, effect)
}

func cancelDeployment(id fairlead.DeploymentID, effect string) Step {
	return step(fairlead.VerbDeploymentCancel, fairlead.Args{Deployment: string(id)}, effect)
}

func retry(id fairlead.DeploymentID, effect string) Step {
	return step(fairlead.VerbDeploymentRetry, fairlead.Args{Deployment: string(id)}, effect)
}

func deploy(install string) Step {
	return step(fairlead.VerbInstallDeploy, fairlead.Args{Install: install}, "plans all components again")
}

func planOnly(install string) Step {
	return step(fairlead.VerbInstallPlan, fairlead.Args{Install: install}, "compares what exists with what should exist, and changes nothing")
}

func teardown(install string) Step {
	return step(fairlead.VerbInstallTeardown, fairlead.Args{Install: install}, "destroys the remaining resources")
}

func showInstall(install, effect string) Step {
	return step(fairlead.VerbInstallShow, fairlead.Args{Install: install}, effect)
}

func installStack(install, effect string) Step {
	return step(fairlead.VerbInstallStack, fairlead.Args{Install: install}, effect)
}

func unlock(install, component, lock string) Step {
	return step(fairlead.VerbInstallUnlock, fairlead.Args{Install: install, Component: component, Lock: lock}, "removes the lock now")
}

func pushState(install, component, file string) Step {
	return step(fairlead.VerbInstallPushState, fairlead.Args{Install: install, Component: component, File: file},
		"uploads it as the component's state; run it on the machine with the file")
}

func showJob(id fairlead.JobID, effect string) Step {
	return step(fairlead.VerbJobShow, fairlead.Args{Job: string(id)}, effect)
}

func logs(id fairlead.JobID, effect string) Step {
	return step(fairlead.VerbJobLogs, fairlead.Args{Job: string(id)}, effect)
}

func cancelJob(id fairlead.JobID, effect string) Step {
	return step(fairlead.VerbJobCancel, fairlead.Args{Job: string(id)}, effect)
}

func showRunner(name, effect string) Step {
	return step(fairlead.VerbRunnerShow, fairlead.Args{Runner: name}, effect)
}

func enrol(name string) Step {
	return step(fairlead.VerbRunnerEnrol, fairlead.Args{Runner: name}, "creates the token with which an agent on another host enrols (`--enrolment-token-file`)")
}

func enable(name string) Step {
	return step(fairlead.VerbRunnerEnable, fairlead.Args{Runner: name}, "lets it start jobs")
}

func checkRunner(name string) Step {
	return step(fairlead.VerbRunnerCheck, fairlead.Args{Runner: name}, "tests it")
}

func step(v fairlead.Verb, args fairlead.Args, effect string) Step {
	return Step{Action: fairlead.Action{Verb: v, Args: args}, Effect: effect}
}

func byHand(what string) Step { return Step{Effect: what} }
