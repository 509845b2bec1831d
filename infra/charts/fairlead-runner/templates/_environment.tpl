{{/* The environment of the agent. A test compares it with the variables in pkg/config. */}}
{{- define "runner.environment" -}}
{{- $v := .Values -}}
{{/* Requests to the API server must not use the proxy. The kubelet sets its address in each pod. */}}
{{- $direct := "" -}}
{{- if or $v.proxy.http $v.proxy.https }}{{ $direct = join "," (compact (list $v.proxy.no "$(KUBERNETES_SERVICE_HOST)")) }}{{ end -}}
{{- $all := list
  (dict "name" "FAIRLEAD_URL" "value" $v.controlPlane.url)
  (dict "name" "FAIRLEAD_CA_FILE" "value" (ternary "/etc/fairlead-runner-ca/ca.crt" "" (ne $v.controlPlane.ca.existingSecret "")))
  (dict "name" "FAIRLEAD_ALLOW_PLAIN_HTTP" "value" (ternary "true" "" $v.controlPlane.allowPlainHTTP))
  (dict "name" "FAIRLEAD_IDENTITY" "value" $v.identity.type)
  (dict "name" "FAIRLEAD_RUNNER_ID" "value" $v.runner.id)
  (dict "name" "FAIRLEAD_TRUSTED_KEYS" "value" (join "," $v.runner.trustedKeys))
  (dict "name" "FAIRLEAD_RUNNER_DATA" "value" "/var/lib/fairlead-runner")
  (dict "name" "FAIRLEAD_AGENT_CONFIG" "value" "/etc/fairlead-runner/agent.yaml")
  (dict "name" "FAIRLEAD_LOG_LEVEL" "value" $v.logLevel)
  (dict "name" "FAIRLEAD_MODE" "value" (ternary "" $v.mode (eq $v.mode "enabled")))
  (dict "name" "FAIRLEAD_SHARE_LOG" "value" (ternary "" "false" $v.shareLog))
  (dict "name" "FAIRLEAD_PROVIDER_MIRROR" "value" $v.jobs.providerMirror)
  (dict "name" "FAIRLEAD_STATUS_ADDRESS" "value" (printf ":%v" $v.status.port))
  (dict "name" "HTTP_PROXY" "value" $v.proxy.http)
  (dict "name" "HTTPS_PROXY" "value" $v.proxy.https)
  (dict "name" "NO_PROXY" "value" $direct)
-}}
{{- if eq $v.identity.type "oidc" }}{{ $all = append $all (dict "name" "FAIRLEAD_OIDC_TOKEN_FILE" "value" "/var/run/secrets/fairlead/token") }}{{ end -}}
{{- if eq $v.identity.type "key" }}{{ $all = append $all (dict "name" "FAIRLEAD_ENROLMENT_TOKEN_FILE" "value" "/var/run/secrets/fairlead/token") }}{{ end -}}
{{- if eq $v.identity.type "aws-iam" }}{{ $all = append $all (dict "name" "AWS_REGION" "value" $v.identity.aws.region) }}{{ end -}}
{{- range $all }}{{ include "runner.variable" . }}{{ end -}}
{{- /* The agent reads the seed as jobs do: from the variable that the cluster gives for a reference. */}}
{{- with include "runner.seedSecret" . }}
- name: FAIRLEAD_GIVEN_{{ printf "%s/%s" . (include "runner.seedKey" $) | printf "%X" }}
  valueFrom:
    secretKeyRef: {name: {{ . }}, key: {{ include "runner.seedKey" $ | quote }}}
{{- end -}}
{{- end -}}

{{/* The agent's file. A test compares it with the existing fields. */}}
{{- define "runner.file" -}}
{{- $v := .Values -}}
{{- $labels := deepCopy $v.jobs.labels -}}
{{- if $v.workloadIdentity.azure.jobClientID }}{{ $_ := set $labels "azure.workload.identity/use" "true" }}{{ end -}}
{{- $job := dict
  "endpoint" $v.controlPlane.jobURL
  "namespace" (include "runner.jobsNamespace" .)
  "service_account" (include "runner.jobsAccount" .)
  "image" (include "runner.jobsImage" .)
  "image_pull_policy" $v.image.pullPolicy
  "pull_secrets" $v.image.pullSecrets
  "cpu_request" $v.jobs.resources.cpuRequest
  "cpu_limit" $v.jobs.resources.cpuLimit
  "memory_request" $v.jobs.resources.memoryRequest
  "memory_limit" $v.jobs.resources.memoryLimit
  "disk" $v.jobs.resources.disk
  "node_selector" $v.jobs.nodeSelector
  "labels" $labels
  "pod_template" $v.jobs.podTemplate
  "start_timeout" $v.jobs.startTimeout
  "stop_grace" $v.jobs.stopGrace
  "keep_for" $v.jobs.keepFor
  "images" $v.jobs.images
-}}
{{- $accounts := dict -}}
{{- range include "runner.roles" . | fromJsonArray }}{{ $_ := set $accounts (replace "-" "_" .) (printf "%s-%s" (include "runner.jobsAccount" $) .) }}{{ end -}}
{{- $_ := set $job "service_accounts" $accounts -}}
{{- range $name, $value := $job }}{{ if empty $value }}{{ $_ := unset $job $name }}{{ end }}{{ end -}}
{{- $runner := dict "type" "kubernetes" "job" $job -}}
{{- with $v.concurrency }}{{ $_ := set $runner "concurrency" (int .) }}{{ end -}}
{{- $file := dict "runner_configuration" $runner -}}
{{- with $v.secrets }}{{ $_ := set $file "secrets" . }}{{ end -}}
{{- with $v.policy.configMap }}{{ $_ := set $file "policy" (printf "kubernetes:%s/%s" . $v.policy.key) }}{{ end -}}
{{- with $v.policy.ledgerNamespace }}{{ $_ := set $file "ledger" (printf "kubernetes:%s" .) }}{{ end -}}
{{- with include "runner.seedSecret" . }}{{ $_ := set $file "install_key" (printf "kubernetes:%s/%s" . (include "runner.seedKey" $)) }}{{ end -}}
{{- if eq (include "runner.makesSeed" .) "true" }}{{ $_ := set $file "install_key_by_default" true }}{{ end -}}
{{- if eq $v.follow "file" }}{{ $_ := set $file "final" true }}{{ end -}}
{{- toYaml $file -}}
{{- end -}}
