package main

import (
	"slices"
	"strings"
)

// allowedSkip is a test that a strict run may skip. If Test names a parent, its subtests
// may be skipped, too.
type allowedSkip struct {
	testName
	reason string
}

func (a allowedSkip) covers(name testName) bool {
	return a.Package == name.Package && (a.Test == name.Test || strings.HasPrefix(name.Test, a.Test+"/"))
}

// awake returns the rows without those of packages and tests that run on other days: nothing shows whether these exist.
func awake(rows []allowedSkip, wholes []string, tests []testName) []allowedSkip {
	return slices.DeleteFunc(rows, func(row allowedSkip) bool {
		top, _, _ := strings.Cut(row.Test, "/")
		return slices.Contains(wholes, module+"/"+row.Package) || slices.Contains(tests, testName{row.Package, top})
	})
}

// allowedSkips lists the tests that a strict run may skip, with the reasons.
func allowedSkips(short bool) []allowedSkip {
	var rows []allowedSkip
	add := func(reason string, tests ...testName) {
		for _, name := range tests {
			rows = append(rows, allowedSkip{name, reason})
		}
	}
	add("a driver in memory loses its data when it is closed",
		testName{"pkg/blob/blobtest", "TestMemoryConforms/blobs_survive_reopening"},
		testName{"pkg/joblog/joblogtest", "TestMemoryConforms/acknowledged_bytes_survive_reopening"},
		testName{"pkg/queue/memory", "TestMemoryConforms/messages_survive_reopening"})
	add("the model moves the clock of the driver, but a server's clock cannot be moved",
		testName{"pkg/queue/sqs", "TestSQSConforms/random_calls_give_the_same_results_as_a_model"})
	add("the plugin has no tool and no variables",
		testName{"runner/plugin/check", "TestPlugin/a_slow_job_stops_within_its_grace_and_keeps_nothing"},
		testName{"runner/plugin/check", "TestPlugin/a_tool_that_ignores_the_interrupt_stops_within_its_grace_and_keeps_nothing"},
		testName{"runner/plugin/check", "TestPlugin/a_killed_tool_is_a_typed_failure"},
		testName{"runner/plugin/check", "TestPlugin/a_secret_is_shown_nowhere"},
		testName{"runner/plugin/check", "TestPlugin/a_secret_is_in_no_command_line"},
		testName{"runner/plugin/check", "TestPlugin/outputs_keep_their_types"})
	add("git obeys an interrupt, and a build has no outputs",
		testName{"runner/plugin/build", "TestPlugin/a_tool_that_ignores_the_interrupt_stops_within_its_grace_and_keeps_nothing"},
		testName{"runner/plugin/build", "TestPlugin/outputs_keep_their_types"})
	add("the slow job's program ignores interrupts already, and a build has no outputs",
		testName{"runner/plugin/build/imagebuild/buildkit", "TestPluginOfBuildsWithAnImageBuilder/a_tool_that_ignores_the_interrupt_stops_within_its_grace_and_keeps_nothing"},
		testName{"runner/plugin/build/imagebuild/buildkit", "TestPluginOfBuildsWithAnImageBuilder/outputs_keep_their_types"})
	tools := []string{"FAIRLEAD_TOFU"}
	if !short {
		tools = append(tools, "terraform") // only a full run has Terraform
	}
	for _, tool := range tools {
		add("the tool obeys an interrupt",
			testName{"runner/plugin/terraform", "TestPlugin/" + tool + "/a_tool_that_ignores_the_interrupt_stops_within_its_grace_and_keeps_nothing"})
	}
	for _, kind := range []string{"manifest", "helm"} {
		add("the suite's jobs are plans, which are quick; the packages of the engines test cancellations and outputs",
			testName{"runner/kubernetes", "TestPlugins/" + kind + "/a_slow_job_stops_within_its_grace_and_keeps_nothing"},
			testName{"runner/kubernetes", "TestPlugins/" + kind + "/a_tool_that_ignores_the_interrupt_stops_within_its_grace_and_keeps_nothing"},
			testName{"runner/kubernetes", "TestPlugins/" + kind + "/a_killed_tool_is_a_typed_failure"},
			testName{"runner/kubernetes", "TestPlugins/" + kind + "/a_secret_is_in_no_command_line"},
			testName{"runner/kubernetes", "TestPlugins/" + kind + "/outputs_keep_their_types"})
	}
	for _, test := range []string{"a_slow_job_stops_within_its_grace_and_keeps_nothing", "a_tool_that_ignores_the_interrupt_stops_within_its_grace_and_keeps_nothing", "a_killed_tool_is_a_typed_failure", "a_secret_is_in_no_command_line"} {
		add("the suite's jobs are plans, which are quick; the package of the engine tests cancellations", testName{"runner/images", "TestBundlePlugin/" + test})
	}
	add("the suite's jobs are plans, which are quick; the package of the engine tests cancellations",
		testName{"runner/images", "TestPlugin/a_slow_job_stops_within_its_grace_and_keeps_nothing"},
		testName{"runner/images", "TestPlugin/a_tool_that_ignores_the_interrupt_stops_within_its_grace_and_keeps_nothing"},
		testName{"runner/images", "TestPlugin/a_killed_tool_is_a_typed_failure"},
		testName{"runner/images", "TestPlugin/a_secret_is_in_no_command_line"})
	add("root may read and write every file; other tests cover root",
		testName{"pkg/artifact", "TestPackReportsAnUnreadableFile"},
		testName{"pkg/sqlitedb", "TestFolderWithoutPermissionIsReported"})
	add("other tests start it as a separate process",
		testName{"test/sim", "TestWorker"})
	if short {
		add("it shows that one day in three is chosen", testName{"tools/shortrun", "TestOneDayInRunsEveryTestOnSomeDay"})
		// shortrun.OneDayIn chooses the day.
		for pkg, tests := range map[string][]string{
			"cmd/fairlead":                            {"TestBundle", "TestClosedInstallNeedsNoOtherNetwork", "TestDockerBuild", "TestStoryOfAllTypesSurvivesKills"},
			"functions/internal/plane":                {"TestClientsGoOnAfterTheGatewayRefusedThem"},
			"infra/control":                           {"TestBuildRunnerIsOptional", "TestCheckov", "TestGuard", "TestLint", "TestVersionChangesWithItsFunction"},
			"pkg/blob/s3":                             {"TestS3Conforms"},
			"infra/runnerstack":                       {"TestCheckov", "TestGuard", "TestLint"},
			"runner/kubernetes":                       {"TestGroupOfPlansChangesNothing"},
			"runner/kubernetes/helm":                  {"TestKillAtEveryWriteConverges"},
			"pkg/control":                             {"TestLargeOutputsOnDynamoDB", "TestLostRunnerIsReportedOnDynamoDBAndSQS", "TestSchedulesOfActionsOnDynamoDB"},
			"pkg/joblog/cloudwatch":                   {"TestLogIsCompleteDespiteAFaultySubscription"},
			"pkg/joblog/dynamo":                       {"TestArchivedIndexConforms", "TestIndexConforms"},
			"pkg/queue/sqs":                           {"TestSQSConforms"},
			"pkg/store/dynamo":                        {"TestDynamoConforms"},
			"runner":                                  {"TestForeignMessagesEndAmongTheDeadLetters", "TestJobSurvivesRefusedAWSCredentials", "TestScriptRunsInAnImageOfItsOwn", "TestScriptRunsInTheCopyOfAnImage", "TestScriptsTaskCanWriteToItsVolumes", "TestToolFindsOnlyItsOwnCredentials"},
			"runner/agent":                            {"TestTenThousandAgentsStartAtOnce"},
			"runner/agent/direct":                     {"TestPodsOfACloudsClusterEndTheSame", "TestPodsOfBothEndTheSame", "TestReplacedServiceTouchesNoStep", "TestTasksOfBothEndTheSame"},
			"runner/kubernetes/manifest":              {"TestKillAfterOwnNamespaceLeavesNoOrphan"},
			"runner/plugin/build/imagebuild/buildkit": {"TestImageHasTheSBOMOfTheGenerator", "TestLinkOfARepositoryReadsNoFileOfTheRunner", "TestPluginOfBuildsWithAnImageBuilder"},
			"runner/images":                           {"TestLargeBundleNeedsLittleMemory"},
			"runner/images/mirror":                    {"TestKillAtEachWriteIsCompletedByTheNextPlan"},
			"runner/internal/charttest":               {"TestSandboxFromNothing"},
			"runner/plugin/build":                     {"TestHostileArchivesOfModulesAreRefused"},
			"runner/plugin/program":                   {"TestEveryViolationHasItsReason"},
			"runner/plugin/terraform":                 {"TestEmptyDiskTakesLockedProviderFromMirror", "TestProvisionerOutputDoesNotRepeatAnApply", "TestVariablesReachInitPlanAndApply"},
			"tools/release":                           {"TestArchiveForMacOSHasItsPrograms", "TestTwoBuildsGiveTheSameBytes"},
			"test/sim":                                {"TestCancelInterruptsWithin3SecondsOnAWS", "TestCancelWaitsForASaveOfFiveMinutes", "TestDeathsAreNoticed", "TestFailureReportRepeatsTheFailure", "TestLostWakeUpIsNoticed", "TestSameSeedIsTheSameRun"},
			"functions/internal/awstest":              {"TestClosedAppDeploysThroughTheStacks"},
		} {
			for _, test := range tests {
				add("a short run has it on one day in two or three, because it is slow and tests code that changes seldom", testName{pkg, test})
			}
		}
		add("a short run has it on one day in three, because it builds images",
			testName{"functions/internal/awstest", "TestImageIsBuiltWithoutARightToPush"},
			testName{"runner/plugin/build/imagebuild/codebuild", "TestCodeBuild"},
			testName{"runner/plugin/build/imagebuild/codebuild", "TestCodeBuildHasThePrivateBaseAndNoLogin"},
			testName{"runner/plugin/build/imagebuild/codebuild", "TestBuildOfAStepWithoutHeartbeatsEnds"},
			testName{"runner/plugin/build/imagebuild/codebuild", "TestHeartbeatKeepsABuildRunning"},
			testName{"runner/plugin/build/imagebuild/codebuild", "TestBuildOfADeadStepEndsItself"},
			testName{"runner/plugin/build/imagebuild/ko", "TestGoProgramBecomesAnImage"},
			testName{"runner/plugin/build/imagebuild/ko", "TestOtherInputsAreAnotherImage"},
			testName{"runner/plugin/build/imagebuild/ko", "TestSourceRunsNoProgramOnTheRunner"},
			testName{"runner/plugin/build/imagebuild/codebuild", "TestFailuresHaveReasonAndAdvice"})
		add("it needs programs that take minutes to build: make test-all runs it",
			testName{"runner/plugin/terraform", "TestTheOldestSupportedTools"},
			testName{"runner/plugin/terraform", "TestOldestToolsRefuseUnsupportedPlans"})
		add("it needs servers that take a minute to build, and 200 MB: make test-all runs it",
			testName{"runner/plugin/terraform", "TestStateInAnotherCloud"})
		add("it takes minutes: make test-all runs it",
			testName{"cmd/fairlead", "TestAccessEntriesOfEKSArePlanned"},
			testName{"cmd/fairlead", "TestTheAWSServiceIsDeployed"},
			testName{"functions/internal/awstest", "TestCancellationTravelsByItsMarker"},
			testName{"functions/internal/awstest", "TestChainOnTheStacksWaitsForOneStart"},
			testName{"functions/internal/awstest", "TestStoryOfAllTypesOnTheStacks"},
			testName{"functions/internal/awstest", "TestStoryOfAllTypesOnTheStacksSurvivesKills"},
			testName{"functions/internal/awstest", "TestStoryWithSandboxOnTheStacks"},
			testName{"functions/internal/awstest", "TestStoryWithSandboxOnTheStacksSurvivesKills"},
			testName{"functions/internal/awstest", "TestImageWithGoBuildsForAnInstall"},
			testName{"functions/internal/awstest", "TestDirectLaunchDeploysWithoutARunner"},
			testName{"functions/internal/awstest", "TestEveryKindUsesItsOwnQueueAndLog"},
			testName{"functions/internal/awstest", "TestSharedRunnersJobsAreKeptApart"},
			testName{"functions/internal/awstest", "TestOnlyDirectLaunchGetsConfigurations"},
			testName{"functions/internal/awstest", "TestAnotherExternalIDIsRefused"},
			testName{"functions/internal/awstest", "TestSessionsAreRenewedDuringAnApply"},
			testName{"functions/internal/awstest", "TestRunnerIsStoppedAcrossARestore"},
			testName{"functions/internal/awstest", "TestStackTakesProvidersFromItsMirror"},
			testName{"functions/internal/awstest", "TestStackRunsScriptsInListedImages"},
			testName{"functions/internal/awstest", "TestDeletedStackIsInstalledAgain"},
			testName{"infra/control", "TestCDKWorksInTheRoot"},
			testName{"infra/control", "TestCheckoutsOfACommitDeployTheSame"},
			testName{"tools/recordcalls", "TestModuleIsRecorded"},
			testName{"infra/images/runner", "TestImageHasOpenTofuForItsProcessor"},
			testName{"infra/images/internal/image", "TestImageWithShellHasGit"},
			testName{"infra/images/internal/image", "TestImageWithGoBuildsAGoProgram"},
			testName{"functions/internal/plane", "TestApplyAcrossARestoreIsRefused"},
			testName{"functions/internal/plane", "TestLostRegionIsRecoveredInTheSpareRegion"},
			testName{"functions/internal/awstest", "TestAppDeploysThroughTheStacks"},
			testName{"functions/internal/awstest", "TestAWSServiceDeploysThroughTheStacks"},
			testName{"functions/internal/awstest", "TestBuildRunnerRunsBesideControlPlane"},
			testName{"functions/internal/awstest", "TestDockerfileIsBuiltByCodeBuildAndInstalled"},
			testName{"functions/internal/awstest", "TestOneCommandDeploysTheAccount"})
	}
	return rows
}
