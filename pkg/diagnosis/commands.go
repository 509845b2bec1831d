package diagnosis

import (
	"strings"

	"github.com/fairlead/fairlead/pkg/fairlead"
)

// Every command that the product advises is made in this file. A test holds
// each against the real command line.

func command(words ...string) string { return "fairlead " + strings.Join(words, " ") }

func showDeployment(id fairlead.DeploymentID, effect string) Step {
	return Step{command("deployment", "show", string(id)), effect}
}

func followDeployment(id fairlead.DeploymentID) Step {
	return Step{command("deployment", "show", string(id), "--follow"), "shows how it goes on"}
}

func approve(id fairlead.DeploymentID, effect string, components ...string) Step {
	return Step{command(append([]string{"deployment", "approve", string(id)}, components...)...), effect}
}

func cancelDeployment(id fairlead.DeploymentID, effect string) Step {
	return Step{command("deployment", "cancel", string(id)), effect}
}

func retry(id fairlead.DeploymentID, effect string) Step {
	return Step{command("deployment", "retry", string(id)), effect}
}

func deploy(install string) Step {
	return Step{command("install", "deploy", install), "plans all of it anew"}
}

func planOnly(install string) Step {
	return Step{command("install", "deploy", install, "--plan-only"), "compares what there is with what should be, and changes nothing"}
}

func teardown(install string) Step {
	return Step{command("install", "teardown", install), "removes what is left"}
}

func showInstall(install, effect string) Step {
	return Step{command("install", "show", install), effect}
}

func unlock(install, component, lock string) Step {
	return Step{command("install", "unlock", install, component, "--lock-id", quote(lock)), "breaks the lock now"}
}

func pushState(install, component, file string) Step {
	return Step{command("install", "push-state", install, component, file), "makes it the component's state; run it where the file is, or bring the file"}
}

func showJob(id fairlead.JobID, effect string) Step {
	return Step{command("job", "show", string(id)), effect}
}

func logs(id fairlead.JobID, effect string) Step {
	return Step{command("job", "logs", string(id)), effect}
}

func cancelJob(id fairlead.JobID, effect string) Step {
	return Step{command("job", "cancel", string(id)), effect}
}

func showRunner(name, effect string) Step {
	return Step{command("runner", "show", name), effect}
}

func enrol(name string) Step {
	return Step{command("runner", "enrol", name, "--out", "enrolment-token"), "makes the token with which an agent on another host enrols (`--enrolment-token-file`)"}
}

func enable(runner string) Step {
	return Step{command("runner", "enable", runner), "lets it take work"}
}

func checkRunner(name string) Step {
	return Step{command("runner", "check", name), "proves that it works again"}
}

func byHand(what string) Step { return Step{Effect: what} }

// quote makes one word of s for a shell, unless it is one.
func quote(s string) string {
	plain := s != ""
	for _, r := range s {
		plain = plain && (r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./:", r))
	}
	if plain && !strings.HasPrefix(s, "-") {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
