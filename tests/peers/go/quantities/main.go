// quantities says how Kubernetes reads quantities: for each line of stdin, a text in JSON, one line in JSON.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"

	"k8s.io/apimachinery/pkg/api/resource"
)

// reading is what became of one text. Value is rounded up to whole units; Exact is the amount as a decimal number.
type reading struct {
	Error string `json:"error"`
	Value int64  `json:"value"`
	Exact string `json:"exact"`
	Sign  int    `json:"sign"`
}

func read(text string) reading {
	quantity, err := resource.ParseQuantity(text)
	if err != nil {
		return reading{Error: err.Error()}
	}
	return reading{Value: quantity.Value(), Exact: quantity.AsDec().String(), Sign: quantity.Sign()}
}

func main() {
	in, out := bufio.NewScanner(os.Stdin), json.NewEncoder(os.Stdout)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		var text string
		if err := json.Unmarshal(in.Bytes(), &text); err != nil {
			fmt.Fprintln(os.Stderr, "quantities:", err)
			os.Exit(1)
		}
		if err := out.Encode(read(text)); err != nil {
			os.Exit(1) // nobody listens any more
		}
	}
}
