{{- /* A feature's switch as a word: YAML reads a plain off or on as false or true. */ -}}
{{- define "nodeward.word" -}}
{{- if kindIs "bool" . -}}{{- ternary "on" "off" . -}}{{- else -}}{{- . -}}{{- end -}}
{{- end -}}

{{- /* The switches as words, none above `mode`: settings obey these. Without `mode` as they are, `remove` too: rights and
     mounts follow these, so that a daemon can take back what it wrote. JSON. */ -}}
{{- define "nodeward.features" -}}
{{- $ranks := dict "off" 0 "observe" 1 "on" 1 "enforce" 2 -}}
{{- $most := .mode | default "enforce" -}}
{{- $capped := dict -}}
{{- range $name, $value := .features -}}
{{- $word := include "nodeward.word" $value -}}
{{- if or (and $.mode (eq $word "remove")) (and (has $name (list "devices" "nodeEpc" "kubevirtLabel" "topologyObjects")) (ne $most "enforce")) -}}{{- $word = "off" -}}{{- end -}}
{{- if lt (get $ranks $most) (get $ranks $word | default 0) -}}{{- $word = $most -}}{{- end -}}
{{- $_ := set $capped $name $word -}}
{{- end -}}
{{- range list (list "keyClaims" "keys") (list "epcClaims" "limits") (list "cpuClaims" "cpus") (list "quotes" "keys") -}}
{{- $own := index . 0 -}}{{- $below := index . 1 -}}
{{- if lt (get $ranks (get $capped $below)) (get $ranks (get $capped $own)) -}}
{{- fail (printf "%s: features.%s is %s and features.%s is %s: set %s to %s too" $.name $own (get $capped $own) $below (get $capped $below) $below (get $capped $own)) -}}
{{- end -}}
{{- end -}}
{{- if and (ne $capped.sizing "off") (eq $capped.sandboxes "off") -}}
{{- fail (printf "%s: features.sizing is %s and features.sandboxes is off: set sandboxes to observe; it has the files that name the handlers" .name $capped.sizing) -}}
{{- end -}}
{{- if and (eq $capped.nodeEpc "on") (eq $capped.epcClaims "enforce") -}}
{{- fail (printf "%s: features.nodeEpc is on and features.epcClaims is enforce: EPC would be offered twice; set one to off" .name) -}}
{{- end -}}
{{- toJson $capped -}}
{{- end -}}

{{- /* The settings file of nodes with these features. YAML. */ -}}
{{- define "nodeward.settings" -}}
{{- $settings := deepCopy .settings -}}
{{- $paths := dict "limits" "limits.mode" "cpus" "cpus.mode" "keys" "keys.mode" "keyClaims" "keys.dra.mode" "epcClaims" "limits.dra.mode" -}}
{{- $paths = merge $paths (dict "devices" "limits.devices" "nodeEpc" "limits.node_epc" "kubevirtLabel" "cpus.kubevirt_label") -}}
{{- $paths = merge $paths (dict "sandboxes" "sandboxes.mode" "sizing" "sizing.mode" "gate" "gate.mode" "podApi" "podapi.enabled") -}}
{{- $paths = merge $paths (dict "policyObjects" "policy_objects.enabled" "topologyObjects" "topology_objects.enabled") -}}
{{- $paths = merge $paths (dict "podResources" "policy.pod_resources" "cpuClaims" "cpus.dra.mode") -}}
{{- range $name, $word := omit .features "quotes" -}}
{{- if or (ne $word "off") (has $name (list "limits" "cpus")) -}}
{{- $value := $word -}}
{{- if eq $word "on" -}}{{- $value = true -}}{{- end -}}
{{- include "nodeward.set" (dict "in" $settings "path" (get $paths $name | splitList ".") "value" $value) -}}
{{- end -}}
{{- end -}}
{{- if ne .kubeletRoot "/var/lib/kubelet" -}}
{{- include "nodeward.set" (dict "in" $settings "path" (list "keys" "kubelet_root") "value" .kubeletRoot) -}}
{{- end -}}
{{- toYaml $settings -}}
{{- end -}}

{{- define "nodeward.set" -}}
{{- $at := .in -}}
{{- range initial .path -}}
{{- if not (get $at .) -}}{{- $_ := set $at . dict -}}{{- end -}}
{{- $at = get $at . -}}
{{- end -}}
{{- $_ := set $at (last .path) .value -}}
{{- end -}}

{{- /* The DaemonSets: one for each node group, or one for all nodes. Each has its features and its part. JSON list. */ -}}
{{- define "nodeward.groups" -}}
{{- $groups := list -}}
{{- $names := list -}}
{{- range .Values.nodeGroups | default (list dict) -}}
{{- if and .name (has .name $names) -}}{{- fail (printf "nodeGroups: two groups are named %s" .name) -}}{{- end -}}
{{- $names = append $names .name -}}
{{- $name := ternary (printf "nodeGroups %s" .name) "values" (hasKey . "name") -}}
{{- $switches := mergeOverwrite (deepCopy $.Values.features) (.features | default dict) -}}
{{- $features := include "nodeward.features" (dict "name" $name "mode" (include "nodeward.word" $.Values.mode) "features" $switches) | fromJson -}}
{{- $settings := mergeOverwrite (deepCopy $.Values.node.settings) (.settings | default dict) -}}
{{- $own := pick . "kubeletRoot" "nriDir" "hostNetwork" "quotesGroup" -}}
{{- $node := mergeOverwrite (deepCopy (omit $.Values.node "settings" "pod")) $own -}}
{{- $file := include "nodeward.settings" (dict "settings" $settings "features" $features "kubeletRoot" $node.kubeletRoot) | fromYaml -}}
{{- $pod := mergeOverwrite (deepCopy $.Values.node.pod) (.pod | default dict) -}}
{{- with .nodeSelector -}}{{- $_ := set $pod "nodeSelector" (mergeOverwrite ($pod.nodeSelector | default dict) .) -}}{{- end -}}
{{- $args := list -}}
{{- if ne $features.quotes "off" -}}{{- /* the flag keeps what else the table keys.kinds ships with */ -}}
{{- if not $node.quotesGroup -}}
{{- fail (printf "%s: features.quotes is %s: set node.quotesGroup to the number of the group of the quote service (getent group qgsd)" $name $features.quotes) -}}
{{- end -}}
{{- with ($file.keys | default dict).kinds -}}{{- if not (hasKey . "tdx") -}}
{{- fail (printf "%s: features.quotes is %s, and keys.kinds has no row tdx" $name $features.quotes) -}}
{{- end -}}{{- end -}}
{{- $args = list "--set" (printf "keys.kinds.tdx.attestation=%s" $features.quotes) -}}
{{- end -}}
{{- $part := merge (dict "settings" $file "pod" $pod "args" $args) $node -}}
{{- $switches = include "nodeward.features" (dict "name" $name "features" $switches) | fromJson -}}
{{- $groups = append $groups (dict "group" (.name | default "") "features" $features "switches" $switches "part" $part) -}}
{{- end -}}
{{- toJson $groups -}}
{{- end -}}

{{- /* The folders of the host that a group's features need, as patches of the DaemonSet. */ -}}
{{- define "nodeward.patches" -}}
{{- $patches := list -}}
{{- if without (list .keys .devices .epcClaims .cpuClaims .podResources) "off" -}}{{- $patches = append $patches "keys" -}}{{- end -}}
{{- if without (list .keyClaims .epcClaims .cpuClaims) "off" -}}{{- $patches = append $patches "dra" -}}{{- end -}}
{{- if ne .devices "off" -}}{{- $patches = append $patches "sgx-devices" -}}{{- end -}}
{{- if ne .sandboxes "off" -}}{{- $patches = append $patches "sandboxes" -}}{{- end -}}
{{- if ne .quotes "off" -}}{{- $patches = append $patches "quotes" -}}{{- end -}}
{{- toJson $patches -}}
{{- end -}}

{{- /* The rights that a group's features need of the API server. */ -}}
{{- define "nodeward.rights" -}}
{{- $rights := list -}}
{{- if ne .switches.keys "off" -}}{{- $rights = append $rights "nfd" -}}{{- end -}}
{{- if without (list .switches.keyClaims .switches.epcClaims .switches.cpuClaims) "off" -}}{{- $rights = concat $rights (list "claims" "device-classes") -}}{{- end -}}
{{- if ne .switches.nodeEpc "off" -}}{{- $rights = append $rights "node-epc" -}}{{- end -}}
{{- if ne .switches.kubevirtLabel "off" -}}{{- $rights = append $rights "kubevirt-label" -}}{{- end -}}
{{- if ne .switches.policyObjects "off" -}}{{- $rights = append $rights "policy-objects" -}}{{- end -}}
{{- if ne .switches.topologyObjects "off" -}}{{- $rights = append $rights "topology-objects" -}}{{- end -}}
{{- toJson $rights -}}
{{- end -}}
