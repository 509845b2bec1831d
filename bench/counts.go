package main

import "time"

// counts contains the numbers of repetitions, the sizes and the waiting times of the
// sections. docs/contributing/benchmarks.md has the counts of a full run.
type counts struct {
	commits int // floor: commits of one row

	warmClaims int // claim, compete: claims before the timed ones
	claims     int // claim, compete: timed claims, one after the other

	checks          int   // check: jobs, one after the other
	noopJobs        int   // noop: jobs for each concurrency, created at once
	noopConcurrency []int // noop: concurrencies of the agent
	starts          int   // start: starts of each program, in turn
	controlJobs     int   // control, usecases: jobs

	lease          time.Duration // recovery, detect: length of a job's lease
	recoveryJobs   int           // recovery: jobs in the table when the server is killed
	recoveries     int           // recovery: kills of the server
	deadSteps      int           // detect: killed steps, one after the other
	deadHostJobs   int           // detect: jobs on the killed host
	deployRounds   int           // deploy: rounds, without the first, which does not count
	queueInstalls  int           // queue: installs that are deployed at once
	queueRounds    int           // queue: rounds
	graphRounds    int           // graph: rounds
	providerRounds int           // provider: rounds, without the first, which does not count
	fiftyInstalls  int           // fifty: installs of ten components that are deployed at once
	clusterRounds  int           // cluster: rounds of a chart and of objects, without the first, which does not count
	imageRounds    int           // image: rounds, without the first, which does not count
	imageBytes     int64         // image: bytes of the layers
	logRuns        int           // log: deployments of the app "ticker", which writes 40 lines

	competitors  int // compete: agents of one runner
	competedJobs int // compete: jobs, created at once

	crowdRunners int           // crowd: runners, each with an agent
	crowdFor     time.Duration // crowd: length of the wait before the measurement, and length of the measurement

	placementRules   int // placement: rules
	placementRunners int // placement: runners
	placementRounds  int // placement: decisions
	placementReads   int // placement: decisions that read the table first

	renewals int // units: renewals of a lease

	idleChecks int           // idle: jobs through each agent before it is idle
	idleFor    time.Duration // idle: length of the measurement; long enough for Go to return memory to the system

	watchFor time.Duration // time of observing the machine before the first section
}

// full returns the counts of a measurement.
func full() counts {
	return counts{
		commits:    500,
		warmClaims: 20, claims: 400,
		checks: 50, noopJobs: 600, noopConcurrency: []int{4, 8, 16}, starts: 100, controlJobs: 4000,
		lease: 45 * time.Second, recoveryJobs: 10_000, recoveries: 5, deadSteps: 10, deadHostJobs: 4,
		deployRounds: 15, queueInstalls: 20, queueRounds: 3, graphRounds: 3, fiftyInstalls: 50, providerRounds: 9, clusterRounds: 15, imageRounds: 5, imageBytes: 1 << 30, logRuns: 4,
		competitors: 50, competedJobs: 10_000,
		crowdRunners: 1000, crowdFor: 60 * time.Second,
		placementRules: 10_000, placementRunners: 1000, placementRounds: 200, placementReads: 20,
		renewals:   10,
		idleChecks: 20, idleFor: 60 * time.Second,
		watchFor: 3 * time.Second,
	}
}

// smoke returns the smallest counts with which every section runs all of its code. The
// lease is so long that a step renews it in time even on a busy machine.
func smoke() counts {
	return counts{
		commits:    10,
		warmClaims: 1, claims: 5,
		checks: 2, noopJobs: 10, noopConcurrency: []int{4}, starts: 5, controlJobs: 50,
		lease: 10 * time.Second, recoveryJobs: 100, recoveries: 1, deadSteps: 1, deadHostJobs: 2,
		deployRounds: 1, queueInstalls: 4, queueRounds: 1, graphRounds: 1, fiftyInstalls: 3, providerRounds: 1, clusterRounds: 1, imageRounds: 1, imageBytes: 8 << 20, logRuns: 1,
		competitors: 5, competedJobs: 50,
		crowdRunners: 10, crowdFor: time.Second,
		placementRules: 100, placementRunners: 10, placementRounds: 5, placementReads: 2,
		renewals:   2,
		idleChecks: 2, idleFor: time.Second,
		watchFor: 500 * time.Millisecond,
	}
}
