package control

import (
	"github.com/fairlead/fairlead/pkg/store"
)

// The records that use cases take and return. They are the store's own, named
// here so that a caller of control needs no other package.
type (
	// SessionRecord is an agent's session.
	SessionRecord = store.Session
	// JobRecord is a job with what it produced.
	JobRecord = store.Job
	// StoredJob is a job with the version it was read at.
	StoredJob = store.Stored[store.Job]
	// DeploymentRecord is a deployment.
	DeploymentRecord = store.Deployment
	// StoredDeployment is a deployment with its revision.
	StoredDeployment = store.Stored[store.Deployment]
	// ComponentRecord is a component of an install.
	ComponentRecord = store.Component
	// InputRecord is a value given to an install.
	InputRecord = store.Input
	// StackReport is what a customer's stack has made.
	StackReport = store.StackReport
	// ChannelRecord is an update channel of runners.
	ChannelRecord = store.Channel
	// PlanRecord is what a plan job reports.
	PlanRecord = store.Plan
)
