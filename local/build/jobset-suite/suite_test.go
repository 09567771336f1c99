// The suite of JobSet's integration specs, with Holdfast in place of JobSet's controller.
//
// It stands for test/integration/controller/suite_test.go of sigs.k8s.io/jobset; the specs are compiled unmodified.

package controllertest

import (
	"context"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
)

var (
	cfg       *rest.Config
	k8sClient client.Client

	// These global context vars used to pass ctx cancel func to AfterSuite as
	// a workaround for https://github.com/kubernetes-sigs/controller-runtime/issues/1571
	ctx    context.Context
	cancel context.CancelFunc
)

func TestAPIs(t *testing.T) {
	RegisterFailHandler(Fail)

	RunSpecs(t, "Controller Suite")
}

var _ = BeforeSuite(func() {
	logf.SetLogger(zap.New(zap.WriteTo(GinkgoWriter), zap.UseDevMode(true)))

	ctx, cancel = context.WithCancel(context.Background())

	var err error
	// KUBECONFIG names the API server. As in envtest, no controller of Kubernetes runs beside it.
	cfg, err = ctrl.GetConfig()
	Expect(err).NotTo(HaveOccurred())
	cfg.QPS, cfg.Burst = -1, -1

	err = jobset.AddToScheme(scheme.Scheme)
	Expect(err).NotTo(HaveOccurred())

	watching, err := client.NewWithWatch(cfg, client.Options{Scheme: scheme.Scheme})
	Expect(err).NotTo(HaveOccurred())

	_, err = attempts(ctx, watching)
	Expect(err).NotTo(HaveOccurred())

	k8sClient = interceptor.NewClient(watching, interceptor.Funcs{Create: createEnabled})

	go collect(ctx, watching)
})

var _ = AfterSuite(func() {
	cancel()
})

// createEnabled creates an object. A namespace is enabled for workloads by HOLDFAST before the specs go on: the account
// it gets there is the one that its Jobs are created as.
func createEnabled(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
	if err := c.Create(ctx, obj, opts...); err != nil {
		return err
	}
	if _, isNamespace := obj.(*corev1.Namespace); !isNamespace {
		return nil
	}
	command := exec.CommandContext(ctx, os.Getenv("HOLDFAST"), "namespace", "enable", obj.GetName())
	command.Stdout, command.Stderr = GinkgoWriter, GinkgoWriter
	return command.Run()
}

// collect stands in for the garbage collector where the specs do not play it themselves.
//
// JobSet deletes Jobs, and the specs take the collector's finalizer from these. Holdfast deletes the owner of an
// attempt's objects, which JobSet does not have: so its dependents are deleted here, and the owner after them. Of a
// namespace that is being deleted, whose spec is over, everything goes.
func collect(ctx context.Context, c client.Client) {
	for ctx.Err() == nil {
		if owners, err := attempts(ctx, c); err == nil {
			for i := range owners {
				collectAttempt(ctx, c, &owners[i])
			}
		}
		var namespaces corev1.NamespaceList
		if err := c.List(ctx, &namespaces); err == nil {
			for i := range namespaces.Items {
				if namespaces.Items[i].DeletionTimestamp != nil {
					collectNamespace(ctx, c, namespaces.Items[i].Name)
				}
			}
		}
		time.Sleep(200 * time.Millisecond)
	}
}

func attempts(ctx context.Context, c client.Client) ([]unstructured.Unstructured, error) {
	list := &unstructured.UnstructuredList{}
	list.SetAPIVersion("holdfast.dev/v1")
	list.SetKind("AttemptList")
	err := c.List(ctx, list)
	return list.Items, err
}

// collectAttempt deletes what an owner that is deleted in the foreground owns, and then lets the owner go.
//
// A Job with pods is deleted in the foreground, too, as the collector does, since the specs' Jobs would have pods.
func collectAttempt(ctx context.Context, c client.Client, owner *unstructured.Unstructured) {
	if owner.GetDeletionTimestamp() == nil || !slices.Contains(owner.GetFinalizers(), metav1.FinalizerDeleteDependents) {
		return
	}
	left := 0
	for _, one := range objects(ctx, c, owner.GetNamespace()) {
		owned := slices.ContainsFunc(one.GetOwnerReferences(), func(reference metav1.OwnerReference) bool {
			return reference.UID == owner.GetUID()
		})
		if !owned {
			continue
		}
		left++
		if one.GetDeletionTimestamp() == nil {
			policy := metav1.DeletePropagationBackground
			if _, isJob := one.(*batchv1.Job); isJob {
				policy = metav1.DeletePropagationForeground
			}
			uid := one.GetUID()
			_ = c.Delete(ctx, one, client.PropagationPolicy(policy), client.Preconditions{UID: &uid})
		}
	}
	if left == 0 {
		release(ctx, c, owner)
	}
}

// collectNamespace lets everything go in a namespace that is being deleted.
func collectNamespace(ctx context.Context, c client.Client, namespace string) {
	for _, one := range objects(ctx, c, namespace) {
		if one.GetDeletionTimestamp() != nil {
			release(ctx, c, one)
		}
	}
	var jobsets jobset.JobSetList
	if err := c.List(ctx, &jobsets, client.InNamespace(namespace)); err == nil {
		for i := range jobsets.Items {
			release(ctx, c, &jobsets.Items[i])
		}
	}
}

func objects(ctx context.Context, c client.Client, namespace string) []client.Object {
	var found []client.Object
	var jobs batchv1.JobList
	if err := c.List(ctx, &jobs, client.InNamespace(namespace)); err == nil {
		for i := range jobs.Items {
			found = append(found, &jobs.Items[i])
		}
	}
	var services corev1.ServiceList
	if err := c.List(ctx, &services, client.InNamespace(namespace)); err == nil {
		for i := range services.Items {
			found = append(found, &services.Items[i])
		}
	}
	var claims corev1.PersistentVolumeClaimList
	if err := c.List(ctx, &claims, client.InNamespace(namespace)); err == nil {
		for i := range claims.Items {
			found = append(found, &claims.Items[i])
		}
	}
	return found
}

// release takes the finalizers that controllers of Kubernetes would take from an object that is being deleted.
func release(ctx context.Context, c client.Client, one client.Object) {
	mine := func(name string) bool {
		return name == metav1.FinalizerDeleteDependents || name == "kubernetes.io/pvc-protection"
	}
	if one.GetDeletionTimestamp() == nil || !slices.ContainsFunc(one.GetFinalizers(), mine) {
		return
	}
	rest := slices.DeleteFunc(slices.Clone(one.GetFinalizers()), mine)
	before := one.DeepCopyObject().(client.Object)
	one.SetFinalizers(rest)
	_ = c.Patch(ctx, one, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
}
