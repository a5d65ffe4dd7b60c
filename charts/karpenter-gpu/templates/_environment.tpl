{{/*
Settings become environment variables, each under the name that Karpenter reads. A setting that
is empty, false or zero is left out, as in Karpenter's own chart: the controller's default holds.
*/}}
{{- define "karpenter-gpu.ownEnvironment" -}}
{{- $settings := .Values.settings -}}
{{- $dra := include "karpenter-gpu.dra" . | fromYaml -}}
{{- if and $settings.legacyNodeRepair $settings.featureGates.terminateFirstRepair -}}
{{- fail "settings.legacyNodeRepair excludes settings.featureGates.terminateFirstRepair, which it does not know: unset one of them" -}}
{{- end -}}
- name: KUBERNETES_MIN_VERSION
  value: "1.19.0-0"
- name: KARPENTER_SERVICE
  value: {{ include "karpenter-gpu.fullname" . }}
- name: SYSTEM_NAMESPACE
  valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
- name: CPU_REQUESTS
  valueFrom: {resourceFieldRef: {containerName: {{ include "karpenter-gpu.containerName" . }}, resource: requests.cpu, divisor: 1m}}
- name: MEMORY_LIMIT
  valueFrom: {resourceFieldRef: {containerName: {{ include "karpenter-gpu.containerName" . }}, resource: limits.memory, divisor: "0"}}
- name: METRICS_PORT
  value: {{ .Values.controller.metrics.port | quote }}
- name: HEALTH_PROBE_PORT
  value: {{ .Values.controller.healthProbe.port | quote }}
- name: CLUSTER_NAME
  value: {{ tpl ($settings.clusterName | toString) . | required "settings.clusterName is empty, set it to the name of the EKS cluster" | quote }}
- name: FEATURE_GATES
  value: {{ include "karpenter-gpu.featureGates" . | quote }}
- name: AWS_FEATURE_GATES
  value: {{ printf "NodeClassCEL=%t,DRANVIDIAGPU=%t,DRAEFA=%t,RebootForRepair=%t" $settings.awsFeatureGates.nodeClassCEL $dra.draNVIDIAGPU $dra.draEFA $settings.awsFeatureGates.rebootForRepair | quote }}
- name: IGNORE_DRA_REQUESTS
  value: {{ $dra.ignoreDRARequests | quote }}
{{- range $variable, $setting := dict
    "LOG_LEVEL" .Values.logLevel
    "LOG_OUTPUT_PATHS" (join "," .Values.logOutputPaths)
    "LOG_ERROR_OUTPUT_PATHS" (join "," .Values.logErrorOutputPaths)
    "BATCH_MAX_DURATION" $settings.batchMaxDuration
    "BATCH_IDLE_DURATION" $settings.batchIdleDuration
    "PREFERENCE_POLICY" $settings.preferencePolicy
    "MIN_VALUES_POLICY" $settings.minValuesPolicy
    "CLUSTER_CA_BUNDLE" $settings.clusterCABundle
    "CLUSTER_ENDPOINT" $settings.clusterEndpoint
    "ISOLATED_VPC" $settings.isolatedVPC
    "EKS_CONTROL_PLANE" $settings.eksControlPlane
    "VM_MEMORY_OVERHEAD_PERCENT" $settings.vmMemoryOverheadPercent
    "INTERRUPTION_QUEUE" $settings.interruptionQueue
    "ENABLE_ZONAL_SHIFT" $settings.enableZonalShift
    "RESERVED_ENIS" $settings.reservedENIs
    "LEGACY_NODE_REPAIR" $settings.legacyNodeRepair
    "DISABLE_CLUSTER_STATE_OBSERVABILITY" $settings.disableClusterStateObservability
    "DISABLE_DRY_RUN" $settings.disableDryRun
    "AMI_REFRESH_INTERVAL" $settings.amiRefreshInterval
    "SUBNET_REFRESH_INTERVAL" $settings.subnetRefreshInterval
    "SECURITY_GROUP_REFRESH_INTERVAL" $settings.securityGroupRefreshInterval
    "PREDICT_GPU_LABELS" .Values.gpu.predictLabels
    "GPU_OPERATOR_NAMESPACE" .Values.gpu.operator.namespace
    "GPU_REPAIR_TOLERATION" .Values.gpu.repairToleration
}}
{{- with $setting }}
- name: {{ $variable }}
  value: {{ tpl (toString .) $ | quote }}
{{- end }}
{{- end }}
{{- if .Values.gpu.catalog }}
- name: GPU_CATALOG_FILE
  value: /etc/karpenter-gpu/catalog.yaml
{{- end }}
{{- end -}}

{{/* The value of FEATURE_GATES. A gate is the setting's name with a capital. */}}
{{- define "karpenter-gpu.featureGates" -}}
{{- $pairs := list -}}
{{- range list "reservedCapacity" "spotToSpotConsolidation" "nodeRepair" "nodeOverlay" "staticCapacity" "capacityBuffer" "terminateFirstDrift" "terminateFirstRepair" "podDeletionCostManagement" -}}
{{- $pairs = printf "%s%s=%t" (substr 0 1 . | upper) (substr 1 -1 .) (index $.Values.settings.featureGates .) | append $pairs -}}
{{- end -}}
{{- join "," $pairs -}}
{{- end -}}

{{/*
The three settings of DRA as they take effect, in YAML. enableDRA stands for all of them and
tolerates none beside it; a gate by itself makes Karpenter look at DRA requests, without which
the gate would do nothing.
*/}}
{{- define "karpenter-gpu.dra" -}}
{{- $settings := .Values.settings -}}
{{- $single := dict
    "settings.ignoreDRARequests" $settings.ignoreDRARequests
    "settings.awsFeatureGates.draNVIDIAGPU" $settings.awsFeatureGates.draNVIDIAGPU
    "settings.awsFeatureGates.draEFA" $settings.awsFeatureGates.draEFA -}}
{{- if $settings.enableDRA -}}
{{- range $key, $value := $single -}}
{{- if not (kindIs "invalid" $value) -}}
{{- fail (printf "settings.enableDRA excludes %s: unset one of them" $key) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $gpu := or $settings.enableDRA $settings.awsFeatureGates.draNVIDIAGPU | default false -}}
{{- $efa := or $settings.enableDRA $settings.awsFeatureGates.draEFA | default false -}}
draNVIDIAGPU: {{ $gpu }}
draEFA: {{ $efa }}
ignoreDRARequests: {{ and (not (or $gpu $efa)) (or (kindIs "invalid" $settings.ignoreDRARequests) $settings.ignoreDRARequests) }}
{{- end -}}

{{/*
The environment of the container. A variable of controller.env takes the place of ours: server-side
apply refuses a name that stands twice.
*/}}
{{- define "karpenter-gpu.environment" -}}
{{- $theirs := .Values.controller.env | default list -}}
{{- $names := list -}}
{{- range $theirs }}{{- $names = append $names .name }}{{- end -}}
{{- $environment := list -}}
{{- range include "karpenter-gpu.ownEnvironment" . | fromYamlArray -}}
{{- if not (has .name $names) }}{{- $environment = append $environment . }}{{- end -}}
{{- end -}}
{{- concat $environment $theirs | toYaml -}}
{{- end -}}
