// The suite of Kueue's end-to-end specs for JobSets, with Holdfast in place of JobSet's controller.
//
// It stands for test/e2e/singlecluster/extended/suite_test.go of sigs.k8s.io/kueue; the specs are compiled unmodified.

package extended

import (
	"context"
	"os"
	"os/exec"
	"testing"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"sigs.k8s.io/kueue/test/util"
)

var (
	k8sClient client.WithWatch
	ctx       context.Context
)

func TestAPIs(t *testing.T) {
	util.RunE2ESuite(t, "End To End Extended Suite")
}

var _ = ginkgo.BeforeSuite(func() {
	util.SetupLogger()

	// KUBECONFIG names the API server. Kueue and Holdfast run, outside of the cluster, before the suite begins.
	watching, _, err := util.CreateClientUsingCluster("")
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	k8sClient = interceptor.NewClient(watching, interceptor.Funcs{Create: createEnabled})
	ctx = ginkgo.GinkgoT().Context()
})

// createEnabled creates an object. A namespace is labelled for Kueue, and enabled for workloads by HOLDFAST before the
// specs go on: the account that it gets there is the one that its Jobs are created as.
func createEnabled(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
	namespace, isNamespace := obj.(*corev1.Namespace)
	if !isNamespace {
		return c.Create(ctx, obj, opts...)
	}
	namespace.Labels = map[string]string{os.Getenv("KUEUE_LABEL"): "true"}
	if err := c.Create(ctx, obj, opts...); err != nil {
		return err
	}
	command := exec.CommandContext(ctx, os.Getenv("HOLDFAST"), "namespace", "enable", obj.GetName())
	command.Stdout, command.Stderr = ginkgo.GinkgoWriter, ginkgo.GinkgoWriter
	return command.Run()
}
