package agent

import (
	"strings"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/config"
)

// sessionStack returns the runner's report about its stack, or nil if the runner belongs to no stack.
// The region is the region in the stack's ARN.
func sessionStack(s *config.RunnerStack) *wire.SessionStack {
	if s == nil {
		return nil
	}
	w := &wire.SessionStack{InstallID: s.Install, ExternalID: s.ExternalID, StackReport: wire.StackReport{
		StackID: s.StackID, Version: s.StackVersion, Image: s.Image, StateBucket: s.StateBucket, StateKey: s.StateKey,
		Images: s.Images, Artifacts: s.Artifacts, Boundary: s.Boundary,
		Roles: map[string]string{"provision": s.RoleProvision, "deploy": s.RoleDeploy, "deprovision": s.RoleDeprovision, "read-only": s.RoleReadOnly},
	}}
	if s.StatesMade != "" {
		w.Made = strings.Split(s.StatesMade, ",")
	}
	if s.AppActions != "" {
		w.AppActions, w.OperationActions = strings.Split(s.AppActions, ","), s.ActionsByOperation()
	}
	if arn := strings.Split(s.StackID, ":"); len(arn) > 3 {
		w.Region = arn[3]
	}
	return w
}
