{{- /* Objects of a shipped manifest (deploy/*, below manifests): as they are, in the release's namespace, with the values. */ -}}
{{- define "nodeward.file" -}}
{{- $in := . -}}
{{- $text := .root.Files.Get .file | required (printf "%s is not in this chart" .file) -}}
{{- if .moves -}}
{{- $text = regexReplaceAll "(?m)namespace: nodeward(-system)?$" $text (printf "namespace: %s" .root.Release.Namespace) -}}
{{- $text = replace "nodeward-system" .root.Release.Namespace $text -}}
{{- end -}}
{{- $text = include "nodeward.folders" (dict "text" $text "part" .part) -}}
{{- range regexSplit "(?m)^---\\s*$" $text -1 -}}
{{- $object := fromYaml . -}}
{{- if and $object.kind (ne $object.kind "Namespace") -}}
{{- include "nodeward.object" (dict "object" $object "in" $in) }}
{{ end -}}
{{- end -}}
{{- end -}}

{{- /* A manifest's text with the folders of these nodes in the place of the usual ones. */ -}}
{{- define "nodeward.folders" -}}
{{- $node := .part -}}
{{- $text := regexReplaceAll "(?m)^(\\s+)path: /var/run/nri$" .text (printf "${1}path: %s" ($node.nriDir | default "/var/run/nri")) -}}
{{- regexReplaceAll "/var/lib/kubelet/(pods-api|pod-resources|plugins)" $text (printf "%s/${1}" (trimSuffix "/" ($node.kubeletRoot | default "/var/lib/kubelet"))) -}}
{{- end -}}

{{- define "nodeward.object" -}}
{{- $object := .object -}}
{{- $root := .in.root -}}
{{- $labels := dict "app.kubernetes.io/managed-by" $root.Release.Service "app.kubernetes.io/instance" $root.Release.Name "helm.sh/chart" (printf "%s-%s" $root.Chart.Name $root.Chart.Version) -}}
{{- $_ := set $object.metadata "labels" (merge ($object.metadata.labels | default dict) $labels) -}}
{{- with .in.group -}}{{- include "nodeward.grouped" (dict "object" $object "group" .) -}}{{- end -}}
{{- if eq $object.kind "ConfigMap" -}}
{{- with .in.part.settings -}}{{- $_ := set $object "data" (dict "nodeward.yaml" (toYaml . | printf "%s\n")) -}}{{- end -}}
{{- with .in.part.parameters -}}{{- $_ := set $object "data" . -}}{{- end -}}
{{- end -}}
{{- if has $object.kind (list "DaemonSet" "Deployment") -}}
{{- $pod := $object.spec.template.spec -}}
{{- $container := index $pod.containers 0 -}}
{{- $_ := set $container "image" $root.Values.image -}}
{{- $_ := set $container "imagePullPolicy" $root.Values.imagePullPolicy -}}
{{- with .in.part.settings -}}
{{- $_ := set $object.spec.template.metadata "annotations" (dict "nodeward.io/settings" (toYaml . | sha256sum)) -}}
{{- end -}}
{{- if and $container.readinessProbe $container.readinessProbe.httpGet -}}
{{- with .in.part.settings -}}
{{- $metrics := .metrics | default dict -}}
{{- $listen := $metrics.listen | default "" -}}
{{- if and $metrics.enabled (regexMatch "^(0\\.0\\.0\\.0|\\[::\\])?:[0-9]+$" $listen) -}}
{{- $_ := set (index $container.ports 0) "containerPort" (regexFind "[0-9]+$" $listen | int) -}}
{{- else if eq $object.kind "DaemonSet" -}}
{{- $_ := set $container "readinessProbe" (dict "exec" (dict "command" (list "nodeward" "status" "--ready")) "periodSeconds" 30 "timeoutSeconds" 10) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- with .in.part.args -}}{{- $_ := set $container "args" (concat $container.args .) -}}{{- end -}}
{{- if .in.part.hostNetwork -}}
{{- $_ := set $pod "hostNetwork" true -}}
{{- $_ := set $pod "dnsPolicy" "ClusterFirstWithHostNet" -}}
{{- end -}}
{{- include "nodeward.placed" (dict "object" $object "pod" $pod "container" $container "of" (.in.part.pod | default dict)) -}}
{{- range $file := .in.patches -}}
{{- $patch := (fromYaml (include "nodeward.folders" (dict "text" ($root.Files.Get $file) "part" $.in.part))).spec.template.spec -}}
{{- $more := index $patch.containers 0 -}}
{{- $_ := set $pod "volumes" (include "nodeward.merged" (dict "old" $pod.volumes "new" $patch.volumes "by" "name") | fromYamlArray) -}}
{{- $_ := set $container "volumeMounts" (include "nodeward.merged" (dict "old" $container.volumeMounts "new" $more.volumeMounts "by" "mountPath") | fromYamlArray) -}}
{{- with $patch.hostPID -}}{{- $_ := set $pod "hostPID" . -}}{{- end -}}
{{- with $patch.securityContext -}}{{- $_ := set $pod "securityContext" (mergeOverwrite $pod.securityContext .) -}}{{- end -}}
{{- with $pod.securityContext.supplementalGroups -}}{{- $_ := set $pod.securityContext "supplementalGroups" (list $.in.part.quotesGroup) -}}{{- end -}}
{{- with $more.securityContext -}}{{- $_ := set $container "securityContext" (mergeOverwrite $container.securityContext .) -}}{{- end -}}
{{- end -}}
{{- end -}}
---
{{ toYaml $object }}
{{- end -}}

{{- /* Names and labels of a node group, so that its DaemonSet finds only its own pods and settings. */ -}}
{{- define "nodeward.grouped" -}}
{{- $object := .object -}}
{{- $name := printf "%s-%s" $object.metadata.name .group -}}
{{- $_ := set $object.metadata "name" $name -}}
{{- if eq $object.kind "DaemonSet" -}}
{{- $label := dict "nodeward.io/node-group" .group -}}
{{- range list $object.metadata.labels $object.spec.selector.matchLabels $object.spec.template.metadata.labels -}}{{- $_ := merge . $label -}}{{- end -}}
{{- range $object.spec.template.spec.volumes -}}{{- if .configMap -}}{{- $_ := set .configMap "name" $name -}}{{- end -}}{{- end -}}
{{- end -}}
{{- end -}}

{{- /* Where the part's pods run, and what they may use. What the shipped manifest says of labels and nodes stays. */ -}}
{{- define "nodeward.placed" -}}
{{- $of := .of -}}
{{- $pod := .pod -}}
{{- $metadata := .object.spec.template.metadata -}}
{{- with $of.annotations -}}{{- $_ := set $metadata "annotations" (merge ($metadata.annotations | default dict) .) -}}{{- end -}}
{{- with $of.labels -}}{{- $_ := set $metadata "labels" (merge $metadata.labels .) -}}{{- end -}}
{{- with $of.nodeSelector -}}{{- $_ := set $pod "nodeSelector" (merge ($pod.nodeSelector | default dict) .) -}}{{- end -}}
{{- range list "affinity" "tolerations" "imagePullSecrets" "priorityClassName" -}}
{{- if hasKey $of . -}}{{- $_ := set $pod . (get $of .) -}}{{- end -}}
{{- end -}}
{{- with $of.resources -}}{{- $_ := set $.container "resources" . -}}{{- end -}}
{{- with $of.updateStrategy -}}
{{- if and (eq $.object.kind "DaemonSet") (.rollingUpdate | default dict).maxSurge -}}
{{- fail "updateStrategy.rollingUpdate.maxSurge: two daemons of a node cannot run; use maxUnavailable" -}}
{{- end -}}
{{- $_ := set $.object.spec (ternary "updateStrategy" "strategy" (eq $.object.kind "DaemonSet")) . -}}
{{- end -}}
{{- end -}}

{{- /* A list with a patch's: what has the same `by` is replaced, as kubectl patch does it. */ -}}
{{- define "nodeward.merged" -}}
{{- $by := .by -}}
{{- $names := list -}}
{{- range .new -}}{{- $names = append $names (get . $by) -}}{{- end -}}
{{- $kept := list -}}
{{- range .old -}}{{- if not (has (get . $by) $names) -}}{{- $kept = append $kept . -}}{{- end -}}{{- end -}}
{{- toYaml (concat $kept .new) -}}
{{- end -}}

{{- /* A second release would write the same names: it is refused, with the first one's name. */ -}}
{{- define "nodeward.alone" -}}
{{- range list "nodeward-node" "nodeward-exporter" "nodeward-agent" -}}
{{- with lookup "rbac.authorization.k8s.io/v1" "ClusterRole" "" . -}}
{{- $name := index (.metadata.annotations | default dict) "meta.helm.sh/release-name" | default "" -}}
{{- $namespace := index (.metadata.annotations | default dict) "meta.helm.sh/release-namespace" | default "" -}}
{{- if or (ne $name $.Release.Name) (ne $namespace $.Release.Namespace) -}}
{{- if $name -}}
{{- fail (printf "Nodeward is installed already, as release %s in namespace %s: upgrade or uninstall that one" $name $namespace) -}}
{{- end -}}
{{- fail (printf "Nodeward is installed already, by its plain manifests (ClusterRole %s): delete those first, or go on with them" .metadata.name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and .Values.nodeGroups (not .Values.node.enabled) -}}
{{- fail "node.enabled is false, and nodeGroups names groups: set it to true, or nodeGroups to []" -}}
{{- end -}}
{{- if and .Values.node.enabled .Values.exporter.enabled -}}
{{- fail "node.enabled and exporter.enabled are both true: the daemon of node has the same metrics; set one to false" -}}
{{- end -}}
{{- end -}}
