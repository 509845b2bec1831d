package process

import (
	"os/exec"

	"github.com/fairlead/fairlead/runner/internal/shim"
	"github.com/fairlead/fairlead/runner/proctree"
)

// startIn starts the command in a control group.
func startIn(g proctree.Group, cmd *exec.Cmd, orphans *shim.Orphans) error {
	f, err := g.Open()
	if err != nil {
		return err
	}
	defer f.Close()
	cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(f.Fd())
	return orphans.Start(cmd)
}
