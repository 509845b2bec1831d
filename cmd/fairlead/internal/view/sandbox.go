package view

import (
	"fmt"

	"github.com/fairlead/fairlead/pkg/api/wire"
)

// sandbox describes a sandbox and the runner in it, as the rest of the parts do.
func sandbox(kind, createdBy, runner string) string {
	text := kind + ", exists already"
	if createdBy != "" {
		text = kind + ", created by " + createdBy
	}
	if runner != "" {
		text += "; " + runner
	}
	return text
}

// sandboxOfApp describes what the installs of an app stand on; "": it does not matter to the app.
func sandboxOfApp(s *wire.AppSandbox) string {
	switch {
	case s == nil:
		return ""
	case s.RunnerDeployedBy != "":
		return sandbox(s.Kind, s.CreatedBy, fmt.Sprintf("component %s deploys a runner into it", s.RunnerDeployedBy))
	}
	return sandbox(s.Kind, s.CreatedBy, "")
}

// sandboxOfInstall describes what an install stands on; "": it does not matter to its app.
func sandboxOfInstall(s *wire.InstallSandbox) string {
	switch {
	case s == nil:
		return ""
	case s.Runner != "":
		return sandbox(s.Kind, s.CreatedBy, "runner "+s.Runner+" is in it")
	}
	return sandbox(s.Kind, s.CreatedBy, "")
}

// sandboxWarning writes why the install's runner should not run its jobs, if there is a reason.
func sandboxWarning(p *Page, s *wire.InstallSandbox) {
	if s == nil || s.Warning == "" {
		return
	}
	p.Line("%s Its sandbox is of kind %s: %s.", Styled(p.Style.Warn("!")), s.Kind, s.Warning)
}
